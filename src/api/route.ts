// What a route is: declared once, as data, from which the router, the access check, the audit and the
// OpenAPI description all come.
import type { z } from "zod";
import type { Access, Principal } from "../credentials/credentials.ts";

export interface Answer {
  body: unknown;
  /** For the audit: how many rows the call touched. */
  magnitude: number;
  endpointId?: string;
  /** The change wrote its audit entry itself, in its own transaction. */
  audited?: boolean;
}

export interface Route<Body extends z.ZodType = z.ZodType> {
  method: "GET" | "POST";
  path: string;
  /** Its name in the audit, and in OpenAPI. */
  operation: string;
  summary: string;
  access: Access;
  /** Left out where the route takes no body. */
  body?: Body;
  answer: z.ZodType;
  handle(call: { principal: Principal; body: z.output<Body> }): Promise<Answer>;
}

/** Lets `handle` see the type of its own `body`. */
export function route<Body extends z.ZodType>(definition: Route<Body>): Route {
  return definition as unknown as Route;
}

/** Routes that are off, and audited at every call, as one. */
export function isNotificationRoute({ path }: Pick<Route, "path">): boolean {
  return path.startsWith("/v1/notifications/");
}
