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

/** Who asks without a credential: a receiver, known by its endpoint's secret. */
export interface Signer {
  project: string;
  endpointId: string;
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
  /** A second way in, for a request without Authorization that its Taisce-Signature speaks for. */
  signed?: {
    /** Whose secret signed the body; undefined where nobody's did. */
    signer(request: { bytes: Buffer; signature: string }): Promise<Signer | undefined>;
    handle(call: { signer: Signer; body: unknown }): Promise<Answer>;
  };
  /** `gone` makes a signal of when the client has left, for who keeps it waiting. */
  handle(call: { principal: Principal; body: z.output<Body>; gone: () => AbortSignal }): Promise<Answer>;
}

/** Lets `handle` see the type of its own `body`. */
export function route<Body extends z.ZodType>(definition: Route<Body>): Route {
  return definition as unknown as Route;
}

/** Routes of which every call is audited. */
export function isAuditedRoute({ path }: Pick<Route, "path">): boolean {
  return /^\/v1\/(?:notifications|deliveries|groups)\//.test(path);
}

/** Routes that are off as one. */
export function isNotificationRoute({ path }: Pick<Route, "path">): boolean {
  return path.startsWith("/v1/notifications/");
}
