// What being told replaces: clients that poll GET /v1/freshness, one a project, every second, every tenth of
// one, and without a pause. How long until each learns of an advance, and what the polls cost the database.
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { newToken, tokenDigest } from "../../../src/credentials/token.ts";
import { micros } from "../clock.ts";
import type { Setup } from "../peers/peer.ts";
import { taisce } from "../peers/taisce.ts";
import { transactions } from "../statements.ts";
import { quantile } from "../statistics.ts";
import { offsetsFor, type Write, writeSteadily } from "../writers.ts";
import { type Context, endpointsAt, type Measure, onFreshDatabase, type Sample } from "./measure.ts";

const PROJECTS = 10;
const PER_SECOND = 50;
/** A second goes by before the first answer and after the last advance. */
const MARGIN_MS = 1_500;

export const polling: Measure = {
  name: "polling",
  title: `${PROJECTS} clients polling GET /v1/freshness, ${PER_SECOND} advances a second, ms until each is known`,
  columns: [
    { figure: "p50", title: "commit p50", digits: 1 },
    { figure: "p99", title: "p99", digits: 1 },
    { figure: "polls", title: "polls/s", digits: 0 },
    { figure: "queries", title: "queries/s for them", digits: 0 },
  ],
  async *run(context) {
    for (const [name, pauseMs] of [
      ["every 1 s", 1_000],
      ["every 100 ms", 100],
      ["no pause", 0],
    ] as const) {
      yield await pollingOnce(context, name, pauseMs);
    }
  },
};

async function pollingOnce(context: Context, condition: string, pauseMs: number): Promise<Sample> {
  const { receivers, databases, options, progress, run } = context;
  progress(`polling: ${condition}`);
  return onFreshDatabase(context, taisce, endpointsAt(receivers.main.origin, PROJECTS), async (setup) => {
    // Nobody is told: what is measured is the other way to know.
    await setup.database.client.query("UPDATE taisce.notification_endpoint SET disabled_at = now()");
    const tokens = await issueTokens(setup);
    const worker = await taisce.start(setup, {
      environment: { TAISCE_ROLE: "api", TAISCE_RATE_LIMIT: "1000000" },
    });
    const api = new Pool(worker.url ?? "", { connections: PROJECTS, pipelining: 1 });
    const offsets = offsetsFor(setup);
    const known = new Map<string, number[]>();
    let polls = 0;
    let over = false;
    const poll = async (scope: string, token: string) => {
      const times: number[] = [];
      known.set(scope, times);
      // Not in step with each other.
      await sleep(Math.random() * pauseMs);
      while (!over) {
        const startedAt = micros();
        const { body } = await api.request({
          path: "/v1/freshness",
          method: "GET",
          headers: { authorization: `Bearer ${token}` },
        });
        const { formed } = (await body.json()) as { formed: number | null };
        polls++;
        const at = micros();
        while (times.length <= (formed ?? -1)) times.push(at);
        const wait = pauseMs - (micros() - startedAt) / 1_000;
        if (wait > 0) await sleep(wait);
      }
    };
    const before = await transactions(databases, setup.database);
    const polling = Promise.all([...tokens].map(([scope, token]) => poll(scope, token)));
    const writes = await writeSteadily(taisce, setup, offsets, {
      perSecond: PER_SECOND,
      seconds: options.seconds,
    });
    await sleep(MARGIN_MS);
    over = true;
    await polling;
    const queries = (await transactions(databases, setup.database)) - before - writes.length;
    await api.close();
    await worker.stop();
    const seconds = options.seconds + MARGIN_MS / 1_000;
    const waits = writes.map((one) => waitOf(one, known)).filter((wait) => !Number.isNaN(wait));
    return {
      measure: "polling",
      condition,
      peer: "freshness",
      run,
      figures: {
        p50: quantile(waits, 0.5),
        p99: quantile(waits, 0.99),
        polls: polls / seconds,
        queries: queries / seconds,
      },
      problems: waits.length < writes.length ? [`${writes.length - waits.length} advances not seen`] : [],
      raw: { waitsMs: waits },
    };
  });
}

const waitOf = ({ scope, offset, committedAt }: Write, known: Map<string, number[]>) =>
  ((known.get(scope)?.[offset] ?? Number.NaN) - committedAt) / 1_000;

async function issueTokens({ database: { client }, endpoints }: Setup): Promise<Map<string, string>> {
  const tokens = new Map(endpoints.map(({ scope }) => [scope, newToken()]));
  await client.query(
    `INSERT INTO taisce.credential (credential_id, scope, name, access, token_sha256)
     SELECT gen_random_uuid(), scope, 'bench', 'read-only', digest FROM unnest($1::text[], $2::bytea[]) AS t(scope, digest)`,
    [[...tokens.keys()], [...tokens.values()].map(tokenDigest)],
  );
  return tokens;
}
