// The log: JSON lines on stderr, pretty where stderr is a terminal. Nothing secret is ever passed to
// it; errors are written as type, code, message and stack, never with the values of a statement.
import { pino } from "pino";
import pretty from "pino-pretty";

export type Logger = Pick<pino.Logger, "trace" | "debug" | "info" | "warn" | "error">;

export function createLog(level: string): pino.Logger {
  const terminal = process.stderr.isTTY === true;
  return pino(
    {
      level,
      base: null,
      formatters: { level: (level) => ({ level }) },
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: describeError },
    },
    terminal
      ? pretty({
          destination: 2,
          colorize: true,
          translateTime: "SYS:HH:MM:ss.l",
          ignore: "pid,hostname",
          sync: true,
        })
      : pino.destination({ dest: 2, sync: false }),
  );
}

interface ErrorDescription {
  type: string;
  message: string;
  code?: string;
  stack?: string;
  cause?: ErrorDescription;
}

/** PostgreSQL's `detail`, `where` and `internalQuery` may quote row values, so they are left out. */
function describeError(error: unknown): ErrorDescription | unknown {
  if (!(error instanceof Error)) return error;
  const description: ErrorDescription = { type: error.name, message: error.message };
  const { code } = error as { code?: unknown };
  if (typeof code === "string") description.code = code;
  if (error.stack !== undefined) description.stack = error.stack;
  if (error.cause instanceof Error) description.cause = describeError(error.cause) as ErrorDescription;
  return description;
}
