// What a contender's worker process is told, and how it says that it is ready.

export interface WorkerConfig {
  mode: "prepare" | "run";
  databaseUrl: string;
  origin: string;
  ca: string;
  concurrency: number;
  /** 64 hex digits. */
  secret: string;
  /** For undici alone: requests to send. */
  count?: number;
}

/** A job as it lies in the database. */
export interface Job {
  path: string;
  scope: string;
  formedThrough: number;
  storedThrough: number;
  parkedTurns: number;
  occurredAt: string;
}

export const config = JSON.parse(process.env.BENCH_WORKER ?? "{}") as WorkerConfig;

export function ready(answer: unknown = true): void {
  process.send?.(answer);
}

/** Runs `stop` at SIGTERM, or when the benchmark is gone, and ends. */
export function stopWith(stop: () => Promise<unknown>): void {
  let stopping = false;
  const end = () => {
    if (stopping) return;
    stopping = true;
    void stop().finally(() => process.exit());
  };
  process.once("SIGTERM", end);
  process.once("disconnect", end);
}
