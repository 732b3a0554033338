// What runs are summed up by.
import { percentile } from "../../src/demo/statistics.ts";

export interface Spread {
  min: number;
  median: number;
  max: number;
  runs: number;
}

export function spread(values: readonly number[]): Spread {
  return {
    min: Math.min(...values),
    median: percentile(values, 0.5) ?? Number.NaN,
    max: Math.max(...values),
    runs: values.length,
  };
}

/** The percentile of a share, NaN where there is no value. */
export const quantile = (values: readonly number[], share: number): number =>
  percentile(values, share) ?? Number.NaN;
