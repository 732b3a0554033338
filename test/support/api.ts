// A client of the HTTP routes, as a REST client would write one.
import { parseExact } from "../../src/json/exact.ts";

export interface ApiAnswer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the tests look into answers of every shape
  body: any;
}

export interface ApiClient {
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<ApiAnswer>;
  get(path: string): Promise<ApiAnswer>;
}

/** Calls `base` with `token`; a string body is sent as it is. */
export function api(base: string, token?: string): ApiClient {
  const authorization: Record<string, string> =
    token === undefined ? {} : { Authorization: `Bearer ${token}` };
  const call = async (path: string, init: RequestInit): Promise<ApiAnswer> => {
    const response = await fetch(`${base}${path}`, init);
    const text = await response.text();
    const json = response.headers.get("content-type")?.includes("json") === true && text !== "";
    return { status: response.status, headers: response.headers, body: json ? parseExact(text) : text };
  };
  return {
    post: (path, body, headers) =>
      call(path, {
        method: "POST",
        headers: { ...authorization, ...headers },
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
    get: (path) => call(path, { headers: authorization }),
  };
}
