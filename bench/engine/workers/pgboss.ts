// pg-boss as its documentation tunes it for throughput and latency together: LISTEN/NOTIFY on, batches, and
// the next fetch at once while batches come back full.
import { PgBoss } from "pg-boss";
import { PGBOSS } from "../peers/tuning.ts";
import { config, type Job, ready, stopWith } from "./config.ts";
import { createPoster } from "./post.ts";

const QUEUE = "post";

const boss = new PgBoss({
  connectionString: config.databaseUrl,
  max: 10,
  useListenNotify: true,
  // Nothing is scheduled here.
  schedule: false,
});
boss.on("error", (error) => console.error(error));
await boss.start();

if (config.mode === "prepare") {
  await boss.createQueue(QUEUE, { notify: true });
  // Its own statement, for writers that add a job in their transaction.
  let statement = "";
  await boss.insert(QUEUE, [{ data: {} }], {
    db: {
      executeSql: async (text: string) => {
        statement = text;
        return { rows: [] };
      },
    },
  });
  ready(statement);
  stopWith(() => boss.stop({ graceful: false }));
} else {
  const poster = createPoster(config);
  await boss.work<Job>(QUEUE, PGBOSS, async (jobs) => {
    await Promise.all(jobs.map((job) => poster.post(job.id, job.data)));
  });
  ready();
  stopWith(() => boss.stop());
}
