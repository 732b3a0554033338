// How the other queues are tuned, with what their documentation offers: of the values tried, the ones that
// served each best. Others can be tried with BENCH_GRAPHILE='{"localQueue":{"size":100}}' and BENCH_PGBOSS.

const given = (name: string): object => JSON.parse(process.env[name] ?? "{}");

/** graphile-worker's preset; `concurrentJobs` is the benchmark's. */
export const GRAPHILE = {
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
  maxPoolSize: 10,
  ...given("BENCH_GRAPHILE"),
};

/** pg-boss's `work` options. */
export const PGBOSS = {
  batchSize: 64,
  localConcurrency: 4,
  burstWhenBatchFull: true,
  pollingIntervalSeconds: 0.5,
  notifyPollingIntervalSeconds: 0.5,
  ...given("BENCH_PGBOSS"),
};

export const inWords = (tuning: object): string =>
  Object.entries(tuning)
    .map(([name, value]) => `${name} ${JSON.stringify(value)}`)
    .join(", ");
