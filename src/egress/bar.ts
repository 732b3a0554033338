/** Origins that nothing is sent to for a while, since they flooded a connection. */
import { BoundedMap } from "./bounded-map.ts";

/**
 * Milliseconds. A flood below the reach of any limit but the count of its bytes has cost up to most of a second of
 * this thread by the time it is noticed: 10 to 20 µs for each key update asked of us, 10 ms for a junk signature.
 */
const BARRED_MS = 60_000;
/** Origins remembered; the oldest go first. */
const MAX_BARRED = 1_000;

export class Bar {
  readonly #since = new BoundedMap<string, number>(MAX_BARRED);

  add(origin: string): void {
    this.#since.set(origin, performance.now());
  }

  has(origin: string): boolean {
    const since = this.#since.get(origin);
    if (since === undefined) return false;
    if (performance.now() - since < BARRED_MS) return true;
    this.#since.delete(origin);
    return false;
  }
}
