// Whether anything answers at an origin: endpoints that were not tried yet are judged by the others of theirs.
// Without it a thousand endpoints of one host that went silent took the turns of all others not tried yet for 16 s.

/** An attempt that took longer says nothing good of its origin; where none was quicker for as long, it is silent. */
export const SLOW_MS = 1_000;

export class Origin {
  readonly name: string;
  /** Endpoints remembered of it. */
  lanes = 0;
  #unanswered = 0;
  #unansweredSince = 0;

  constructor(name: string) {
    this.name = name;
  }

  /** Attempts begun since the last one that ended soon. */
  get unanswered(): number {
    return this.#unanswered;
  }

  /** At `now` (performance.now, which the caller asks once for all). */
  isSilent(now: number): boolean {
    return this.#unanswered > 0 && now - this.#unansweredSince > SLOW_MS;
  }

  began(): void {
    if (this.#unanswered === 0) this.#unansweredSince = performance.now();
    this.#unanswered++;
  }

  /** An attempt ended, however it did: what ends soon keeps nobody waiting. */
  ended(ms: number): void {
    if (ms <= SLOW_MS) this.#unanswered = 0;
  }
}

/** The origins of the endpoints that are remembered. */
export class Origins {
  readonly #origins = new Map<string, Origin>();

  /** Of a new endpoint. Text that is no URL is its own: the sender refuses it. */
  enter(url: string): Origin {
    const name = URL.parse(url)?.origin ?? url;
    let origin = this.#origins.get(name);
    if (origin === undefined) {
      origin = new Origin(name);
      this.#origins.set(name, origin);
    }
    origin.lanes++;
    return origin;
  }

  /** An endpoint of it was forgotten. */
  leave(origin: Origin): void {
    origin.lanes--;
    if (origin.lanes === 0) this.#origins.delete(origin.name);
  }
}
