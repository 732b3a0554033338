// The service's log while the demo's table is on the screen: warnings and errors are kept for the end.
import { pino } from "pino";
import type { Logger } from "../telemetry/log.ts";

/** Lines kept; the first ones say what went wrong, later ones repeat it. */
const MOST_KEPT = 20;

export interface ServiceLog {
  readonly log: Logger;
  /** From here on errors only: a server that is being stopped is something to warn of, and is meant. */
  stopping(): void;
  /** What the service complained of, one line each. */
  complaints(): string[];
}

export function collectServiceLog(): ServiceLog {
  const kept: string[] = [];
  let dropped = 0;
  const keep = (line: string) => {
    if (kept.length < MOST_KEPT) kept.push(describe(line));
    else dropped++;
  };
  const formatters = { level: (level: string) => ({ level }) };
  const log = pino({ level: "warn", base: null, timestamp: false, formatters }, { write: keep });
  return {
    log,
    stopping() {
      log.level = "error";
    },
    complaints: () => (dropped === 0 ? kept : [...kept, `and ${dropped} more`]),
  };
}

function describe(line: string): string {
  const { level, msg, err, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const cause = (err as { message?: string } | undefined)?.message;
  const details = Object.keys(rest).length === 0 ? "" : ` ${JSON.stringify(rest)}`;
  return `${level}: ${msg}${cause === undefined ? "" : ` (${cause})`}${details}`;
}
