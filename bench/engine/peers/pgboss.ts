// pg-boss: one job an endpoint and advance, added in the writer's transaction by pg-boss's own statement.
import { startWorker } from "./child.ts";
import { JOB, MOVED, type Peer, prepareTables, type Setup } from "./peer.ts";
import { inWords, PGBOSS } from "./tuning.ts";

/** pg-boss's insert, which begins with WITH and takes one list of jobs as JSON in $1. */
const inserts = new WeakMap<Setup, string>();

function insertOf(setup: Setup): string {
  const insert = inserts.get(setup)?.trim();
  if (insert === undefined || !/^WITH /.test(insert))
    throw new Error("pg-boss inserts jobs in another way than known");
  return insert;
}

const jobsOf = (from: string) => `(SELECT json_agg(json_build_object('data', ${JOB}))::text FROM ${from})`;

export const pgboss: Peer = {
  name: "pgboss",
  tuning: `useListenNotify, max 10, ${inWords(PGBOSS)}`,

  async prepare(setup) {
    await prepareTables(setup);
    const worker = await startWorker("pgboss", setup, "prepare");
    inserts.set(setup, String(worker.answer));
    await worker.stop();
  },

  async owe(setup, each) {
    const { client } = setup.database;
    const { rows } = await client.query(
      `SELECT ${jobsOf(`(
         SELECT e.path, e.scope, n AS formed_through, n AS stored_through, 0 AS parked_turns
         FROM generate_series(0, $1::integer - 1) n CROSS JOIN bench.endpoint e ORDER BY n, e.number) e
         CROSS JOIN LATERAL (SELECT e.formed_through, e.stored_through, e.parked_turns) m`)} AS jobs`,
      [each],
    );
    await client.query(insertOf(setup), [rows[0].jobs]);
    await client.query("VACUUM (ANALYZE)");
  },

  start: (setup) => startWorker("pgboss", setup, "run"),

  advance(setup, scope, offset) {
    // Their parameter becomes the jobs that the advance makes.
    const insert = insertOf(setup)
      .replace(/^WITH /, "")
      .replace("$1::text", jobsOf("moved m JOIN bench.endpoint e USING (scope)"));
    return { name: "advance", text: `WITH ${MOVED}, ${insert}`, values: [scope, offset] };
  },
};
