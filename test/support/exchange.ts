// One HTTP request and its answer as they are on the wire, for tests that compare answers byte by byte.
import { expect } from "vitest";

export interface Exchange {
  status: number;
  headers: Headers;
  text: string;
}

export interface ExchangeOptions {
  token?: string | undefined;
  /** In place of `Bearer <token>`. */
  authorization?: string;
  body?: string | Uint8Array<ArrayBuffer> | ReadableStream;
}

export async function exchange(
  base: string,
  method: string,
  path: string,
  { token, authorization, body }: ExchangeOptions = {},
): Promise<Exchange> {
  const header = authorization ?? (token === undefined ? undefined : `Bearer ${token}`);
  const init: RequestInit & { duplex?: "half" } = { method };
  if (header !== undefined) init.headers = { Authorization: header };
  if (body !== undefined) Object.assign(init, { body, duplex: "half" });
  const response = await fetch(`${base}${path}`, init);
  return { status: response.status, headers: response.headers, text: await response.text() };
}

/** What no refusal may show: tokens and secrets, SQL and its names, where the service's own parts are. */
const INSIDE =
  /tsk_[\w-]{10}|[0-9a-f]{64}|\b(select|insert|update|delete) |relation|column|schema|postgres|pg_|\bsql\b|ECONN|node_modules|\.ts\b|127\.0\.0\.|::1|localhost|10\.0\.0\./i;

/** Checks that this is a refusal of that kind, in the one shape, and shows nothing of the inside; its message. */
export function refusal({ status, headers, text }: Exchange, expected: [number, string], what = ""): string {
  const { error, ...rest } = JSON.parse(text);
  expect([status, error.code], `${what} ${text}`).toEqual(expected);
  expect(headers.get("content-type"), what).toBe("application/json");
  expect(Object.keys(error), what).toEqual(["code", "message"]);
  expect(rest, what).toEqual({});
  expect(text, what).not.toMatch(INSIDE);
  expect(error.message.length, what).toBeGreaterThan(10);
  return error.message;
}
