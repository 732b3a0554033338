// The demo's main part: turns form one by one, and each is timed until the receiver has read its
// notification. The next one forms only when the last has arrived, so that no queue is measured.
import { setTimeout as sleep } from "node:timers/promises";
import type { ReceivedRequest } from "./receiver.ts";
import type { DemoProject, Stage } from "./stage.ts";
import { toMicrosecond } from "./statistics.ts";

/** An attempt that fails is made again within this time. */
const ARRIVAL_LIMIT_MS = 5_000;
const RECORD_LIMIT_MS = 5_000;

/** A turn and its notification; `latencyMs` is undefined where none arrived. */
export interface MeasuredTurn {
  number: number;
  offset: bigint;
  /** From just before the turn's COMMIT was sent until the receiver had read the whole request. */
  latencyMs: number | undefined;
  verified: boolean;
  /** Whether a connection to the receiver was opened for it. */
  connected: boolean;
}

export interface Pace {
  /** The number of the first turn, and how many to form. */
  first: number;
  turns: number;
  intervalMs: number;
}

/** Forms turns at an even pace until all are done, one does not arrive, or the signal fires. */
export async function* measureTurns(
  stage: Stage,
  project: DemoProject,
  { first, turns, intervalMs }: Pace,
  signal: AbortSignal,
): AsyncGenerator<MeasuredTurn> {
  const { scope, receiver } = project;
  const start = performance.now();
  for (let count = 0; count < turns; count++) {
    await pause(start + count * intervalMs - performance.now(), signal);
    if (signal.aborted) return;
    const connectionsBefore = receiver.connections;
    const { offset, committedAt } = await stage.formTurn(scope);
    const request = await receiver
      .next((one) => tells(one, scope, offset), ARRIVAL_LIMIT_MS)
      .catch(() => undefined);
    yield {
      number: first + count,
      offset,
      latencyMs: request === undefined ? undefined : toMicrosecond(request.receivedAt - committedAt),
      verified: request?.verified === true,
      connected: receiver.connections > connectionsBefore,
    };
    if (request === undefined) return;
  }
}

/** How many of these turns the service itself lists as delivered, once it has written all that it did. */
export async function countDelivered(
  stage: Stage,
  { token }: DemoProject,
  turns: readonly MeasuredTurn[],
): Promise<number> {
  const deadline = performance.now() + RECORD_LIMIT_MS;
  for (;;) {
    const offsets = await stage.api.deliveredOffsets(token);
    const delivered = turns.filter(({ offset }) => offsets.has(Number(offset))).length;
    const arrived = turns.filter(({ latencyMs }) => latencyMs !== undefined).length;
    if (delivered >= arrived || performance.now() > deadline) return delivered;
    await sleep(20);
  }
}

/** Whether the request is the notification of this offset. */
function tells({ rawBody }: ReceivedRequest, scope: string, offset: bigint): boolean {
  try {
    const body = JSON.parse(rawBody.toString("utf8")) as { scope?: unknown; formed_through?: unknown };
    return body.scope === scope && body.formed_through === Number(offset);
  } catch {
    return false;
  }
}

/** Waits, or less long where the signal fires. */
async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  if (milliseconds > 0) await sleep(milliseconds, undefined, { signal }).catch(() => {});
}
