// graphile-worker: one job an endpoint and advance, added in the writer's transaction.
import { startWorker } from "./child.ts";
import { JOB, MOVED, type Peer, prepareTables } from "./peer.ts";
import { GRAPHILE, inWords } from "./tuning.ts";

export const graphile: Peer = {
  name: "graphile",
  tuning: inWords(GRAPHILE),

  async prepare(setup) {
    await prepareTables(setup);
    await (await startWorker("graphile", setup, "prepare")).stop();
  },

  async owe({ database: { client } }, each) {
    await client.query(
      `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
         SELECT ROW('post', ${JOB}, NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
         FROM (SELECT n AS formed_through, n AS stored_through, 0 AS parked_turns
               FROM generate_series(0, $1::integer - 1) n) m CROSS JOIN bench.endpoint e
         ORDER BY m.formed_through, e.number))`,
      [each],
    );
    await client.query("VACUUM (ANALYZE) graphile_worker._private_jobs");
  },

  start: (setup) => startWorker("graphile", setup, "run"),

  advance: (_setup, scope, offset) => ({
    name: "advance",
    text: `WITH ${MOVED}
           SELECT (graphile_worker.add_job('post', ${JOB})).id FROM moved m JOIN bench.endpoint e USING (scope)`,
    values: [scope, offset],
  }),
};
