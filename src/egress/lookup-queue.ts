/**
 * Which look-up may start when. `getaddrinfo` cannot be cancelled and holds a thread of libuv's pool until it
 * gives up by itself, so a few names whose servers hang must not take every place.
 */
import { BoundedMap } from "./bounded-map.ts";

/** A look-up that waits or runs. */
export interface LookupJob {
  readonly hostname: string;
  /** Names that share it share their places, such as all that one entry of the allow-list permits. */
  readonly group: string;
  /** Called once, when its turn comes; settles when the look-up has ended, and never rejects. */
  run(): Promise<void>;
}

/** How a name's last look-up went; "new" where nothing is remembered of it. The one trusted least stands first. */
const MANNERS = ["slow", "new", "quick"] as const;
type Manner = (typeof MANNERS)[number];

/**
 * How many look-ups of a manner, and of those trusted less, may run at once: over all, and in a group. So a
 * name that was quick gets past names that hang, be they many and their registrant's own.
 * libuv gives look-ups at most half of its threads: eight of the sixteen that `serve` asks for.
 */
const PLACES: Readonly<Record<Manner, Places>> = {
  slow: { overall: 2, inGroup: 1 },
  new: { overall: 4, inGroup: 2 },
  quick: { overall: 6, inGroup: 4 },
};

interface Places {
  readonly overall: number;
  readonly inGroup: number;
}

type Running = Record<Manner, number>;
/** What waits in one group, first come first, told apart by the manner so that none stands in another's way. */
type Line = Record<Manner, Set<LookupJob>>;

/** A look-up that took longer than this many milliseconds was slow, whatever it brought. */
const SLOW_MS = 1_000;
/** Names whose manner is remembered. */
const MAX_NAMES = 10_000;

export class LookupQueue {
  /** The line of each group in which someone waits; the group served last stands last. */
  readonly #waiting = new Map<string, Line>();
  readonly #manners = new BoundedMap<string, Manner>(MAX_NAMES);
  readonly #running = none();
  readonly #runningInGroup = new Map<string, Running>();

  /** Runs the job at once if there is a place for it, else when there is one. */
  add(job: LookupJob): void {
    const manner = this.#mannerOf(job.hostname);
    if (this.#hasPlace(manner, job.group)) this.#start(job, manner);
    else this.#lineOf(job.group)[manner].add(job);
  }

  /** Takes out a job that still waits; false where it runs already or has ended. */
  remove(job: LookupJob): boolean {
    const line = this.#waiting.get(job.group);
    const removed = line !== undefined && MANNERS.some((manner) => line[manner].delete(job));
    if (removed && isEmpty(line)) this.#waiting.delete(job.group);
    return removed;
  }

  #lineOf(group: string): Line {
    let line = this.#waiting.get(group);
    if (line === undefined) {
      line = { slow: new Set(), new: new Set(), quick: new Set() };
      this.#waiting.set(group, line);
    }
    return line;
  }

  #mannerOf(hostname: string): Manner {
    return this.#manners.get(hostname) ?? "new";
  }

  #hasPlace(manner: Manner, group: string): boolean {
    const inGroup = this.#runningInGroup.get(group) ?? none();
    return [manner, "quick" as const].every(
      (each) =>
        upTo(each, this.#running) < PLACES[each].overall && upTo(each, inGroup) < PLACES[each].inGroup,
    );
  }

  #start(job: LookupJob, manner: Manner): void {
    const startedAt = performance.now();
    this.#count(manner, job.group, 1);
    job.run().finally(() => {
      this.#manners.set(job.hostname, performance.now() - startedAt > SLOW_MS ? "slow" : "quick");
      this.#count(manner, job.group, -1);
      this.#startWaiting();
    });
  }

  /** Looks at no more than the first of each line, however many wait. */
  #startWaiting(): void {
    // A group that gets a place goes to the end, where this very loop meets it again: so they take turns.
    for (const [group, line] of this.#waiting) {
      if (upTo("quick", this.#running) >= PLACES.quick.overall) return;
      const manner = MANNERS.find((each) => line[each].size > 0 && this.#hasPlace(each, group));
      const [job] = manner === undefined ? [] : line[manner];
      if (manner === undefined || job === undefined) continue;
      line[manner].delete(job);
      this.#waiting.delete(group);
      if (!isEmpty(line)) this.#waiting.set(group, line);
      this.#start(job, manner);
    }
  }

  #count(manner: Manner, group: string, change: 1 | -1): void {
    const inGroup = this.#runningInGroup.get(group) ?? none();
    this.#running[manner] += change;
    inGroup[manner] += change;
    if (upTo("quick", inGroup) === 0) this.#runningInGroup.delete(group);
    else this.#runningInGroup.set(group, inGroup);
  }
}

function isEmpty(line: Line): boolean {
  return MANNERS.every((manner) => line[manner].size === 0);
}

function none(): Running {
  return { slow: 0, new: 0, quick: 0 };
}

function upTo(manner: Manner, running: Running): number {
  return MANNERS.slice(0, MANNERS.indexOf(manner) + 1).reduce((sum, each) => sum + running[each], 0);
}
