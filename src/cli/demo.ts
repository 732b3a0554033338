// taisce-notify demo: the whole job on this machine, from a commit to a verified request and, for a
// receiver that is down, to a parked delivery. Everything it starts is gone when it ends.
import { DemoError } from "../demo/error.ts";
import { watchInterruption } from "../demo/interruption.ts";
import { FAILING_STATUS, type FailedAttempt, watchParking } from "../demo/parking.ts";
import { Screen } from "../demo/screen.ts";
import { collectServiceLog } from "../demo/service-log.ts";
import { type DemoProject, openStage, type Stage } from "../demo/stage.ts";
import { percentile } from "../demo/statistics.ts";
import { countDelivered, type MeasuredTurn, measureTurns, type Pace } from "../demo/turns.ts";
import { CommandError, count, type Invocation, type Result, text } from "./command.ts";

/** Slow enough that each latency is that of a system at rest. */
const INTERVAL_MS = 50;
const ONGOING_INTERVAL_MS = 1_000;

interface Run {
  wanted: number;
  once: boolean;
  screen: Screen;
  signal: AbortSignal;
  turns: MeasuredTurn[];
  delivered: number;
  parked?: FailedAttempt["delivery"];
  /** The first thing that went wrong, for people. */
  failure?: string;
}

export async function runDemo({ values, environment, json }: Invocation): Promise<Result> {
  const wanted = count(text(values, "turns") ?? "20", "--turns", 1, 10_000);
  const screen = new Screen({
    output: json ? undefined : process.stdout,
    environment,
    installed: import.meta.filename.endsWith(".js"),
  });
  const service = collectServiceLog();
  const { signal, release } = watchInterruption();
  const run: Run = { wanted, once: values.once === true, screen, signal, turns: [], delivered: 0 };
  try {
    screen.opening();
    const stage = await openStage(screen.step, service, signal);
    await play(stage, run);
  } catch (error) {
    if (error instanceof DemoError) throw new CommandError(error.message, { cause: error });
    if (error !== signal.reason) throw error;
  } finally {
    release();
    for (const line of service.complaints()) {
      process.stderr.write(`taisce-notify demo: the service said: ${line}\n`);
    }
  }
  if (signal.aborted && run.once) run.failure ??= `interrupted after ${run.turns.length} of ${wanted} turns`;
  return {
    document: documentOf(run),
    text: run.failure ?? screen.closing(run.turns.length > 0),
    exitCode: run.failure === undefined ? 0 : 1,
  };
}

/** Everything that is shown, on a stage that is gone afterwards. What goes wrong is in `run.failure`. */
async function play(stage: Stage, run: Run): Promise<void> {
  const { screen, signal, wanted } = run;
  const goesOn = () => run.failure === undefined && !signal.aborted;
  try {
    const project = await screen.step(
      "registering an endpoint",
      () => stage.addProject("demo", 204),
      ({ url }) => `endpoint ${url} registered`,
    );
    screen.turnsHeading(INTERVAL_MS);
    await formTurns(stage, project, { first: 1, turns: wanted, intervalMs: INTERVAL_MS }, run);
    screen.figures(run.turns, run.delivered, { explained: true });
    if (goesOn()) await showParking(stage, run);
    if (goesOn() && !run.once) {
      screen.goingOn();
      const pace = { first: wanted + 1, turns: Number.POSITIVE_INFINITY, intervalMs: ONGOING_INTERVAL_MS };
      await formTurns(stage, project, pace, run);
      screen.figures(run.turns, run.delivered, { explained: false });
    }
  } catch (error) {
    if (!(error instanceof DemoError)) throw error;
    run.failure ??= error.message;
  } finally {
    screen.gap();
    await screen.step(
      "stopping and removing everything",
      stage.close,
      () => "everything stopped and removed",
    );
  }
}

async function formTurns(stage: Stage, project: DemoProject, pace: Pace, run: Run): Promise<void> {
  for await (const turn of measureTurns(stage, project, pace, run.signal)) {
    run.turns.push(turn);
    run.screen.turn(turn);
    const which = `turn ${turn.number}, offset ${turn.offset},`;
    if (turn.latencyMs === undefined) {
      const listed = await stage.api.newestDelivery(project.token);
      run.failure ??= `${which} did not arrive: the service lists it as ${listed?.state ?? "not owed"} after ${listed?.attempts ?? 0} attempts (${listed?.last_error ?? "no error"}); check that localhost is this machine, and run the demo again`;
    } else if (!turn.verified) {
      run.failure ??= `${which} arrived with a signature that does not hold; run the demo again, and report it if that repeats`;
    }
  }
  run.delivered = await countDelivered(stage, project, run.turns);
  if (run.delivered < run.turns.length) {
    run.failure ??= `the service lists ${run.delivered} of ${run.turns.length} turns as delivered; run the demo again`;
  }
}

async function showParking(stage: Stage, run: Run): Promise<void> {
  run.screen.parkingHeading();
  const project = await stage.addProject("demo_down", FAILING_STATUS);
  for await (const attempt of watchParking(stage, project, run.signal)) {
    run.screen.failedAttempt(attempt);
    run.parked = attempt.delivery;
  }
  if (run.signal.aborted || run.parked?.state === "parked") return;
  run.failure ??= `the failing receiver's delivery is ${run.parked?.state ?? "missing"}, not parked; run the demo again`;
}

function documentOf({ turns, delivered, parked }: Run) {
  const latencies = turns.flatMap(({ latencyMs }) => latencyMs ?? []);
  return {
    turns: turns.map(({ offset, latencyMs, verified }) => ({
      offset,
      latency_ms: latencyMs ?? null,
      verified,
    })),
    p50_ms: percentile(latencies, 0.5) ?? null,
    p99_ms: percentile(latencies, 0.99) ?? null,
    delivered,
    verified: turns.filter(({ verified }) => verified).length,
    parked:
      parked?.state === "parked"
        ? { attempts: parked.attempts, last_error: parked.last_error, last_status: parked.last_status }
        : null,
  };
}
