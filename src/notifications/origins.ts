// What is known of the origins of endpoints: those that were not tried yet are judged by the others of theirs. Without
// it a thousand endpoints of one silent host took the turns of all others not tried yet for 16 s.

/** An attempt that took longer and was not accepted says nothing good of its origin. */
export const SLOW_MS = 1_000;

/** The origin of a stored URL, which is canonical: the statements cut it out in the same way (queries.ts). */
export const originOf = (url: string): string => `//${url.split("/", 3)[2]}`;

export class Origin {
  readonly name: string;
  /** Endpoints remembered of it. */
  lanes = 0;
  /** Claims to endpoints of it that have not answered yet, sent or waiting. */
  #trying = 0;
  #keepsWaiting = true;
  readonly #tried: Set<Origin>;

  /** `tried`: where it is found while there are such claims. */
  constructor(name: string, tried: Set<Origin>) {
    this.name = name;
    this.#tried = tried;
  }

  /** So many more of those claims, or fewer. */
  tries(change: number): void {
    this.#trying += change;
    if (this.#trying > 0) this.#tried.add(this);
    else this.#tried.delete(this);
  }

  /** Whether it may have no more than `most` of those, and has them: its last attempt kept its place in vain, or it is new. */
  isFull(most: number): boolean {
    return this.#keepsWaiting && this.#trying >= most;
  }

  ended(accepted: boolean, ms: number): void {
    this.#keepsWaiting = !accepted && ms > SLOW_MS;
  }
}

/** The origins of the endpoints that are remembered. */
export class Origins {
  readonly #origins = new Map<string, Origin>();
  readonly #tried = new Set<Origin>();

  of(url: string): Origin {
    const name = originOf(url);
    return this.#origins.get(name) ?? new Origin(name, this.#tried);
  }

  /** The names of those that are full: nothing is under way to the new endpoints of all others, or they answer. */
  full(most: number): string[] {
    return [...this.#tried].filter((origin) => origin.isFull(most)).map(({ name }) => name);
  }

  /** An endpoint of it is remembered. */
  enter(origin: Origin): void {
    origin.lanes++;
    this.#origins.set(origin.name, origin);
  }

  /** It is forgotten. */
  leave(origin: Origin): void {
    origin.lanes--;
    if (origin.lanes === 0) this.#origins.delete(origin.name);
  }
}
