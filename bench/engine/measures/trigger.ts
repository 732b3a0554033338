// What the trigger costs whoever advances a watermark: without it, with it and no endpoint, with an endpoint
// and nobody listening, with a session that listens, and with the service running; one writer and eight.
import { session } from "../database.ts";
import type { Setup, Worker } from "../peers/peer.ts";
import { hearing, taisce } from "../peers/taisce.ts";
import { quantile } from "../statistics.ts";
import { offsetsFor, writeFlatOut } from "../writers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const NO_TRIGGER = "no trigger";

interface State {
  name: string;
  /** Brings the database there; how to leave it again. */
  enter(setup: Setup): Promise<(() => Promise<unknown>) | undefined>;
}

const alter = (setup: Setup, what: string) =>
  setup.database.client.query(`ALTER TABLE taisce.watermark ${what} TRIGGER watermark_notify_update`);
const endpoints = (setup: Setup, disabledAt: string) =>
  setup.database.client.query(`UPDATE taisce.notification_endpoint SET disabled_at = ${disabledAt}`);

const STATES: State[] = [
  {
    name: NO_TRIGGER,
    async enter(setup) {
      await alter(setup, "DISABLE");
      return () => alter(setup, "ENABLE");
    },
  },
  {
    name: "no live endpoint",
    async enter(setup) {
      await endpoints(setup, "now()");
      return () => endpoints(setup, "NULL");
    },
  },
  { name: "nobody listens", enter: async () => undefined },
  {
    name: "one listens",
    async enter({ database }) {
      const listener = await session(database.url);
      await listener.query("LISTEN taisce_formed");
      return () => listener.end();
    },
  },
  {
    name: "service runs",
    async enter(setup) {
      const worker: Worker = await taisce.start(setup);
      if (worker.url !== undefined) await hearing(worker.url);
      return () => worker.stop();
    },
  },
];

export const trigger: Measure = {
  name: "trigger",
  title: "what the trigger costs the writers",
  yardstick: NO_TRIGGER,
  columns: [
    { figure: "commitsPerSecond", title: "commits/s", digits: 0, better: "more" },
    { figure: "p50", title: "commit p50 ms", digits: 3, better: "less" },
    { figure: "p99", title: "p99", digits: 3 },
  ],
  async *run(context) {
    // Who comes first changes from run to run; a table that has grown favours nobody.
    const turn = context.run % STATES.length;
    for (const writers of [1, 8]) {
      for (const state of [...STATES.slice(turn), ...STATES.slice(0, turn)]) {
        yield await stateOnce(context, state, writers);
      }
    }
  },
};

async function stateOnce(context: Context, state: State, writers: number): Promise<Sample> {
  const { receivers, options, progress, run } = context;
  progress(`trigger: ${state.name}, ${writers} writers`);
  return onFreshDatabase(context, taisce, endpointsAt(receivers.main.origin, 100), async (setup) => {
    const leave = await state.enter(setup);
    const offsets = offsetsFor(setup);
    await writeFlatOut(taisce, setup, offsets, { writers, seconds: 1 });
    const seconds = Math.max(1, options.seconds / 2);
    const writes = await writeFlatOut(taisce, setup, offsets, { writers, seconds });
    await leave?.();
    const took = writes.map(({ sentAt, committedAt }) => (committedAt - sentAt) / 1_000);
    return {
      measure: "trigger",
      condition: `${writers} writer${writers === 1 ? "" : "s"}`,
      peer: state.name,
      run,
      figures: {
        commitsPerSecond: writes.length / seconds,
        p50: quantile(took, 0.5),
        p99: quantile(took, 0.99),
      },
      problems: [],
    };
  });
}
