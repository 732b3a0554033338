// Every error the API answers with: one class, one table of codes, one place that makes the answer.
import { randomUUID } from "node:crypto";
import type { Context } from "hono";
import { DatabaseUnavailable } from "../database/database.ts";
import type { Logger } from "../telemetry/log.ts";

/** Contract section 7: each code and the status it comes with. */
export const ERROR_STATUS = {
  unauthenticated: 401,
  notifications_unavailable: 501,
  forbidden: 403,
  invalid_body: 400,
  invalid_destination: 400,
  not_found: 404,
  method_not_allowed: 405,
  rate_limited: 429,
  no_database_capacity: 503,
  internal: 500,
} as const;

export type ErrorCode = keyof typeof ERROR_STATUS;

/** An answer to the client. The message is for people and names what to do. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly code: ErrorCode;
  readonly status: number;
  readonly headers: Record<string, string>;

  constructor(
    code: ErrorCode,
    message: string,
    options: { status?: number; headers?: Record<string, string> } = {},
  ) {
    super(message);
    this.code = code;
    this.status = options.status ?? ERROR_STATUS[code];
    this.headers = options.headers ?? {};
  }
}

export function notificationsUnavailable(): ApiError {
  return new ApiError(
    "notifications_unavailable",
    "This is off here: the operator has named no host or group for it in TAISCE_NOTIFY_DESTINATIONS.",
  );
}

/** Turns whatever was thrown into the one error shape; what is not expected is logged with its id. */
export function answerError(error: unknown, context: Context, log: Logger): Response {
  const answer = asApiError(error, log);
  for (const [name, value] of Object.entries(answer.headers)) context.header(name, value);
  return context.json(errorBody(answer.code, answer.message), answer.status as 400);
}

export function errorBody(code: ErrorCode, message: string): object {
  return { error: { code, message } };
}

function asApiError(error: unknown, log: Logger): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof DatabaseUnavailable) {
    log.warn({ err: error }, "a request found no database connection");
    return new ApiError("no_database_capacity", "The database has no connection free just now; try again.", {
      headers: { "Retry-After": "1" },
    });
  }
  const id = randomUUID();
  log.error({ err: error, id }, "a request failed unexpectedly");
  return new ApiError("internal", `Something went wrong here. The operator finds it in the log as ${id}.`);
}
