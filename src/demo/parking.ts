// The demo's second part: a receiver that is down. Its delivery is tried, waited for and tried again,
// and parked in the end; what the service says of it is read over HTTP after each attempt.
import { setTimeout as sleep } from "node:timers/promises";
import type { ListedDelivery } from "./api.ts";
import { DemoError } from "./error.ts";
import { ATTEMPTS, type DemoProject, type Stage } from "./stage.ts";

/** The longest wait between two attempts is 0.9 s; past this one it will not come. */
const ATTEMPT_LIMIT_MS = 10_000;
const RECORD_LIMIT_MS = 2_000;
/** A delivery under way is due again when its lease ends, later than any wait of the demo's. */
const LONGEST_WAIT_MS = 5_000;

export const FAILING_STATUS = 503;

export interface FailedAttempt {
  number: number;
  /** Since the attempt before, by the receiver's clock; undefined for the first. */
  waitedMs: number | undefined;
  /** The delivery as listed once the attempt was recorded. */
  delivery: ListedDelivery;
  /** Until the next attempt is due; undefined where there is none. */
  nextInMs: number | undefined;
}

/** Forms one turn of the project and yields each attempt, up to the last, or until the signal fires. */
export async function* watchParking(
  stage: Stage,
  project: DemoProject,
  signal: AbortSignal,
): AsyncGenerator<FailedAttempt> {
  const { scope, receiver } = project;
  await stage.formTurn(scope);
  let before: number | undefined;
  for (let number = 1; number <= ATTEMPTS && !signal.aborted; number++) {
    const { receivedAt } = await receiver.next(undefined, ATTEMPT_LIMIT_MS).catch(() => {
      throw new DemoError(
        `attempt ${number} at the failing receiver was not made within ${ATTEMPT_LIMIT_MS / 1_000} s; run the demo again`,
      );
    });
    const delivery = await recorded(stage, project, number);
    yield {
      number,
      waitedMs: before === undefined ? undefined : receivedAt - before,
      delivery,
      nextInMs: delivery.state === "pending" ? untilDue(delivery) : undefined,
    };
    before = receivedAt;
    if (delivery.state !== "pending") return;
  }
}

/** The delivery as listed after the outcome of attempt `number` was written. */
async function recorded(stage: Stage, { token }: DemoProject, number: number): Promise<ListedDelivery> {
  const deadline = performance.now() + RECORD_LIMIT_MS;
  for (;;) {
    const delivery = await stage.api.newestDelivery(token);
    if (delivery !== undefined) {
      const underWay = delivery.state === "pending" && untilDue(delivery) > LONGEST_WAIT_MS;
      if ((delivery.attempts >= number && !underWay) || performance.now() > deadline) return delivery;
    } else if (performance.now() > deadline)
      throw new DemoError("the failing receiver's delivery is not listed");
    await sleep(5);
  }
}

function untilDue({ next_attempt_at }: ListedDelivery): number {
  return next_attempt_at === undefined ? 0 : Math.max(0, Date.parse(next_attempt_at) - Date.now());
}
