// One scenario from its first process to its verdict, and what a scenario can do to the world meanwhile.
import { setTimeout as sleep } from "node:timers/promises";
import { until } from "../support/until.ts";
import { check, type Row } from "./check.ts";
import type { Cluster } from "./cluster.ts";
import type { Replica } from "./replica.ts";
import { buildWorld, type World } from "./world.ts";

/** The campaign cannot stage this here: not a failure, and never silent. */
export class Skip extends Error {
  override readonly name = "Skip";
}

export interface Scenario {
  name: string;
  /** What it does and what must come of it, in one line. */
  shows: string;
  /** Somebody hears every signal throughout: each advance is owed on its own, none only by a later one. */
  everyAdvance?: boolean;
  listenLinks?: boolean;
  run(stage: Stage): Promise<void>;
}

/** When something was done, and to whom: what was in flight there and then may arrive twice. */
export interface Fault {
  from: number;
  until: number;
  /** Lives of replicas; undefined: all. */
  who: string[] | undefined;
}

export interface StageOptions {
  cluster: Cluster;
  directory: string;
  namespace: string;
  seconds: number;
  perSecond: number;
  signal: AbortSignal;
  onOpen: (undo: () => unknown) => void;
}

const WARM_UP_MS = 1_500;
/** All attempts of a row, each cut short by a lost lease, and some. */
const SETTLE_LIMIT_MS = 90_000;

export class Stage {
  readonly world: World;
  readonly faults: Fault[] = [];
  /** What a reader of the row should know. */
  readonly notes: string[] = [];
  readonly broken: string[] = [];
  /** Where news may take no longer than this. */
  longestWaitLimitMs = Number.POSITIVE_INFINITY;
  /** Longest recovery measured, in ms. */
  recoveryMs: number | undefined;
  readonly #options: StageOptions;
  readonly #endsAt: number;

  constructor(world: World, options: StageOptions) {
    this.world = world;
    this.#options = options;
    this.#endsAt = performance.now() + options.seconds * 1_000;
  }

  get options(): StageOptions {
    return this.#options;
  }

  /** Whether there is time for one more round of faults; at least one is always played. */
  get goesOn(): boolean {
    return this.faults.length === 0 || performance.now() < this.#endsAt;
  }

  async sleep(milliseconds: number): Promise<void> {
    await sleep(milliseconds, undefined, { signal: this.#options.signal });
  }

  /** Notes that what `work` does is a fault, to the lives named, as long as it takes. */
  async fault<Result>(replicas: Replica[] | "all", work: () => Promise<Result> | Result): Promise<Result> {
    const who = replicas === "all" ? undefined : replicas.map((replica) => replica.who);
    const fault = { from: Date.now(), until: Number.POSITIVE_INFINITY, who };
    this.faults.push(fault);
    try {
      return await work();
    } finally {
      fault.until = Date.now();
    }
  }

  /** One advance in a project that then stays silent, so that no later one can hide that it was lost; its scope. */
  async lastWord(): Promise<string | undefined> {
    const writer = this.world.quiet.shift();
    if (writer === undefined) return undefined;
    await writer.advance();
    await writer.stop();
    this.world.writers.push(writer);
    return writer.scope;
  }

  /** Milliseconds until a project's endpoint was told something; infinity where it is not within `limitMs`. */
  async toldWithin(scope: string | undefined, limitMs: number): Promise<number> {
    const since = performance.now();
    const { arrivals } = this.world.receiver;
    while (!arrivals.some(({ path }) => path.startsWith(`/${scope}/`))) {
      if (performance.now() - since > limitMs) return Number.POSITIVE_INFINITY;
      await this.sleep(50);
    }
    return performance.now() - since;
  }

  promise(kept: boolean, otherwise: string): void {
    if (!kept) this.broken.push(otherwise);
  }

  recovered(milliseconds: number, limitMs: number, what: string): void {
    this.recoveryMs = Math.max(this.recoveryMs ?? 0, milliseconds);
    this.promise(
      milliseconds <= limitMs,
      Number.isFinite(milliseconds)
        ? `${what} took ${(milliseconds / 1_000).toFixed(1)} s, more than ${limitMs / 1_000} s`
        : `${what} did not happen`,
    );
  }
}

/** Plays one scenario; `keep` decides what is left for a look where a promise was broken. */
export async function play(scenario: Scenario, options: StageOptions, keep: boolean): Promise<Row> {
  const world = await buildWorld({
    ...options,
    name: options.namespace,
    listenLinks: scenario.listenLinks === true,
  });
  let row: Row | undefined;
  try {
    await Promise.all(world.replicas.map((replica) => replica.start()));
    await world.listening();
    for (const writer of world.writers) writer.start(options.perSecond / world.writers.length);
    await sleep(WARM_UP_MS, undefined, { signal: options.signal });
    const stage = new Stage(world, options);
    await run(scenario, stage);
    await settle(stage);
    row = await check(stage, scenario);
    return row;
  } finally {
    await Promise.all(world.writers.map((writer) => writer.stop()));
    await world.close({ keep: keep && row !== undefined && row.broken.length > 0 });
  }
}

/** What a scenario cannot get done breaks a promise like any other; what came of the rest is checked all the same. */
async function run(scenario: Scenario, stage: Stage): Promise<void> {
  try {
    await scenario.run(stage);
  } catch (error) {
    if (error instanceof Skip || stage.options.signal.aborted) throw error;
    stage.broken.push(error instanceof Error ? error.message : String(error));
  }
}

/** Everything is well again: waits until all is told, and stops the replicas as an operator would. */
async function settle({ world, broken }: Stage): Promise<void> {
  await Promise.all(world.writers.map((writer) => writer.stop()));
  for (const replica of world.replicas) {
    replica.signal("SIGCONT");
    await replica.link.heal();
    await replica.listenLink.heal();
    if (!replica.alive) await replica.start();
  }
  const schema = world.namespace.sql;
  const open = async () => {
    const [row] = await world.db.query<{ pending: bigint; unowed: bigint }>(`
      SELECT (SELECT count(*) FROM ${schema}.notification_delivery
              WHERE num_nonnulls(delivered_at, parked_at, superseded_at) = 0) AS pending,
             (SELECT count(*) FROM ${schema}.notification_endpoint e JOIN ${schema}.watermark w USING (scope)
              WHERE w.formed_through > COALESCE(e.registered_from, -1)
                AND NOT EXISTS (SELECT FROM ${schema}.notification_delivery d
                                WHERE d.endpoint_id = e.endpoint_id AND d.formed_through = w.formed_through)) AS unowed`);
    return row ?? { pending: 0n, unowed: 0n };
  };
  await until(
    "everything to be told",
    async () => {
      const { pending, unowed } = await open().catch(() => ({ pending: 1n, unowed: 1n }));
      return pending === 0n && unowed === 0n;
    },
    SETTLE_LIMIT_MS,
  ).catch(async (error: Error) => {
    const { pending, unowed } = await open();
    broken.push(`${error.message}: ${pending} pending, ${unowed} watermarks not owed`);
  });
  const codes = await Promise.all(world.replicas.map((replica) => replica.end("SIGTERM")));
  for (const code of codes) if (code !== 0) broken.push(`a replica stopped with ${code}, not 0`);
  await world.receiver.flush();
}
