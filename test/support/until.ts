// Waits for what a test waits for, instead of sleeping.
import { setTimeout as sleep } from "node:timers/promises";

/** Asks again until the answer is not undefined or false; fails with `what` after `limitMs`. */
export async function until<Value>(
  what: string,
  ask: () => Promise<Value | undefined | false> | Value | undefined | false,
  limitMs = 15_000,
): Promise<Value> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadline) throw new Error(`waited ${limitMs} ms for ${what}`);
    await sleep(10);
  }
}
