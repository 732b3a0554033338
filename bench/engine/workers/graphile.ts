// graphile-worker as its performance page tunes it: a local queue, and completions in batches.
import { Logger, run, runMigrations } from "graphile-worker";
import { GRAPHILE } from "../peers/tuning.ts";
import { config, type Job, ready, stopWith } from "./config.ts";
import { createPoster } from "./post.ts";

const quiet = new Logger(() => () => {});

if (config.mode === "prepare") {
  await runMigrations({ connectionString: config.databaseUrl, logger: quiet });
  ready();
} else {
  const poster = createPoster(config);
  const runner = await run({
    preset: {
      worker: {
        connectionString: config.databaseUrl,
        concurrentJobs: config.concurrency,
        ...GRAPHILE,
        logger: quiet,
      },
    },
    noHandleSignals: true,
    taskList: { post: (payload, { job }) => poster.post(job.id, payload as Job) },
  });
  ready();
  stopWith(() => runner.stop());
}
