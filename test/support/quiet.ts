// A log that says nothing, and metrics nobody reads, for the parts that want them.
import type { Logger } from "../../src/telemetry/log.ts";
import { Metrics } from "../../src/telemetry/metrics.ts";

const nothing = () => {};

export const quietLog: Logger = {
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
} as unknown as Logger;

export const quiet = () => ({ log: quietLog, metrics: new Metrics() });
