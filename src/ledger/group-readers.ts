// Readers that wait for a group's next handoff: as many as come, on one session that hears for all of them,
// and without a connection of the pool while they wait.
import type { Queryable } from "../database/database.ts";
import type { Logger } from "../telemetry/log.ts";
import { worthALine } from "../telemetry/sparingly.ts";
import { type GroupKey, type Groups, type HandoffPage, wakeText } from "./groups.ts";

/** How often groups that are waited for are looked at, for what no NOTIFY told: one statement for all of them. */
const LOOK_EVERY_MS = 1_000;
/** Readers of one project that wait in this process, so that those of one project leave room for others'. */
const MOST_WAITING = 1_000;

/** Too many readers of one project wait already. */
export class TooManyWaiting extends Error {
  override readonly name = "TooManyWaiting";
}

export interface Take {
  after?: string | undefined;
  limit: number;
  /** How long to wait where there is nothing; 0: not at all. */
  waitMs: number;
  /** The reader went away. */
  gone?: AbortSignal | undefined;
}

export interface GroupReadersOptions {
  db: Queryable;
  groups: Groups;
  log?: Logger;
  lookEveryMs?: number;
}

class Waiter {
  readonly key: GroupKey;
  /** The last position in the group that it has been told of. */
  seen: bigint;
  /** It waits no longer. */
  over = false;
  #woken = false;
  #resume: (() => void) | undefined;

  constructor(key: GroupKey, seen: bigint) {
    this.key = key;
    this.seen = seen;
  }

  wake(): void {
    this.#woken = true;
    this.#resume?.();
  }

  readonly end = (): void => {
    this.over = true;
    this.wake();
  };

  /** Until it is woken, which it may have been since it was last. */
  async sleep(): Promise<void> {
    if (!this.#woken) {
      await new Promise<void>((resolve) => {
        this.#resume = resolve;
      });
      this.#resume = undefined;
    }
    this.#woken = false;
  }
}

export class GroupReaders {
  readonly #options: GroupReadersOptions;
  /** By what is said on the channel when it is their turn. */
  readonly #waiting = new Map<string, Set<Waiter>>();
  /** How many wait, by project. */
  readonly #counts = new Map<string, number>();
  #looking: NodeJS.Timeout | undefined;
  #failures = 0;
  #stopped = false;

  constructor(options: GroupReadersOptions) {
    this.#options = options;
  }

  /** How many wait in this process. */
  get waiting(): number {
    return Array.from(this.#counts.values()).reduce((sum, count) => sum + count, 0);
  }

  /**
   * What was handed to a group after a cursor; where there is nothing, as soon as there is, or nothing once
   * the wait is over, the reader gone or the service stopping.
   *
   * @throws TooManyWaiting
   */
  async take(key: GroupKey, { after, limit, waitMs, gone }: Take): Promise<HandoffPage> {
    const { db, groups } = this.#options;
    const page = () => groups.page(db, key, after, limit);
    if (waitMs === 0 || this.#stopped || gone?.aborted === true) return await page();
    // From nothing seen: a cursor from before a restore says more than there is.
    const waiter = this.#enter(new Waiter(key, 0n));
    const timer = setTimeout(waiter.end, waitMs);
    gone?.addEventListener("abort", waiter.end);
    try {
      // It is among those who are woken before it looks: what is handed over meanwhile wakes it.
      for (;;) {
        const found = await page();
        if (found.handoffs.length > 0) return found;
        await waiter.sleep();
        if (waiter.over) return found;
      }
    } finally {
      clearTimeout(timer);
      gone?.removeEventListener("abort", waiter.end);
      this.#leave(waiter);
    }
  }

  /** Takes what was said on the channel. Never throws: it is called from the connection's data handler. */
  hear(text: string): void {
    for (const waiter of this.#waiting.get(text) ?? []) waiter.wake();
  }

  /** Looks at every group that is waited for: a NOTIFY may have been missed. */
  async look(): Promise<void> {
    const { db, groups, log } = this.#options;
    const keys = Array.from(this.#waiting.values(), ([first]) => first?.key).filter(
      (key) => key !== undefined,
    );
    if (keys.length === 0) return;
    try {
      for (const { position, ...key } of await groups.lastPositions(db, keys)) {
        for (const waiter of this.#waiting.get(wakeText(key)) ?? []) {
          if (position <= waiter.seen) continue;
          waiter.seen = position;
          waiter.wake();
        }
      }
      this.#failures = 0;
    } catch (error) {
      this.#failures++;
      if (worthALine(this.#failures)) {
        log?.warn({ err: error, failures: this.#failures }, "groups could not be looked at; trying again");
      }
    }
  }

  /** Answers every reader that waits; those that come later do not wait. */
  stop(): void {
    this.#stopped = true;
    for (const waiters of this.#waiting.values()) for (const waiter of waiters) waiter.end();
  }

  #enter(waiter: Waiter): Waiter {
    const { project } = waiter.key;
    const count = this.#counts.get(project) ?? 0;
    if (count >= MOST_WAITING) throw new TooManyWaiting(`${MOST_WAITING} readers of ${project} wait already`);
    this.#counts.set(project, count + 1);
    const text = wakeText(waiter.key);
    const waiters = this.#waiting.get(text) ?? new Set();
    this.#waiting.set(text, waiters.add(waiter));
    this.#lookLater();
    return waiter;
  }

  #leave(waiter: Waiter): void {
    const { project } = waiter.key;
    const text = wakeText(waiter.key);
    const left = (this.#counts.get(project) ?? 1) - 1;
    if (left > 0) this.#counts.set(project, left);
    else this.#counts.delete(project);
    const waiters = this.#waiting.get(text);
    waiters?.delete(waiter);
    if (waiters?.size === 0) this.#waiting.delete(text);
  }

  /** As long as somebody waits. */
  #lookLater(): void {
    this.#looking ??= setTimeout(async () => {
      await this.look();
      this.#looking = undefined;
      if (this.#waiting.size > 0) this.#lookLater();
    }, this.#options.lookEveryMs ?? LOOK_EVERY_MS);
  }
}
