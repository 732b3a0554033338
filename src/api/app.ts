// The Hono app: routes in, one pipeline for all of them — authenticate, refuse early, read the body,
// handle, audit — and one shape of error out.
import type { HttpBindings } from "@hono/node-server";
import { type Context, Hono } from "hono";
import type { Audit } from "../audit/audit.ts";
import type { Principal } from "../credentials/credentials.ts";
import { DatabaseUnavailable, type Queryable } from "../database/database.ts";
import { stringifyExact } from "../json/exact.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Metrics } from "../telemetry/metrics.ts";
import type { Authentication } from "./authentication.ts";
import { parseBody, readBytes } from "./body.ts";
import { ApiError, answerError, notificationsUnavailable } from "./errors.ts";
import { openApi } from "./openapi.ts";
import { type Answer, isAuditedRoute, isNotificationRoute, type Route } from "./route.ts";

export type Api = Hono<{ Bindings: HttpBindings }>;
type ApiContext = Context<{ Bindings: HttpBindings }>;

export interface Readiness {
  ready: boolean;
  database: "up" | "down";
  listener: "up" | "down" | "off";
}

export interface AppOptions {
  /** Empty in the role `worker`, which answers for its health only. */
  routes: Route[];
  /** Needed where there are routes. */
  authentication?: Authentication;
  audit: Audit;
  db: Queryable;
  notificationsOn: boolean;
  readiness: () => Promise<Readiness>;
  version: string;
  metrics: Metrics;
  log: Logger;
}

export function createApp(options: AppOptions): Api {
  const { routes, metrics, log } = options;
  const app: Api = new Hono();

  app.use(async (context, next) => {
    await next();
    metrics.requests.inc({ status: String(context.res.status) });
  });
  app.onError((error, context) => answerError(error, context, log));
  const whereRoutesAre =
    routes.length > 0 ? "GET /openapi.json lists them" : "this process answers for its health only";
  app.notFound((context) =>
    answerError(new ApiError("not_found", `There is no such route; ${whereRoutesAre}.`), context, log),
  );

  const described = JSON.stringify(openApi(routes, options.version));
  const allowed = new Map<string, string[]>();
  const get = (path: string, handle: (context: ApiContext) => Response | Promise<Response>) => {
    app.get(path, handle);
    allowed.set(path, ["GET", "HEAD"]);
  };
  get("/health", (context) => context.json({ status: "ok" }));
  // Anyone may ask: however many do at once, the database is asked once.
  let asking: Promise<Readiness> | undefined;
  get("/ready", async (context) => {
    asking ??= options.readiness().finally(() => {
      asking = undefined;
    });
    const readiness = await asking;
    return context.json(readiness, readiness.ready ? 200 : 503);
  });
  get("/metrics", async (context) =>
    context.body(await metrics.registry.metrics(), 200, { "Content-Type": metrics.registry.contentType }),
  );
  if (routes.length > 0) {
    get("/openapi.json", (context) => context.body(described, 200, { "Content-Type": "application/json" }));
  }

  for (const route of routes) {
    if (route.method === "GET") get(route.path, (context) => answer(options, route, context));
    else {
      app.post(route.path, (context) => answer(options, route, context));
      allowed.set(route.path, ["POST"]);
    }
  }
  for (const [path, methods] of allowed) {
    app.all(path, () => {
      const Allow = methods.join(", ");
      throw new ApiError("method_not_allowed", `This route takes ${Allow}.`, { headers: { Allow } });
    });
  }
  return app;
}

async function answer(options: AppOptions, route: Route, context: ApiContext): Promise<Response> {
  const { authentication } = options;
  if (authentication === undefined) throw new Error(`${route.path} has no authentication`);
  const signature =
    context.req.header("authorization") === undefined ? context.req.header("taisce-signature") : undefined;
  if (route.signed !== undefined && signature !== undefined) {
    const { signed } = route;
    authentication.admit(context);
    const bytes = await readBytes(context.env.incoming);
    const signer = await signed.signer({ bytes, signature });
    if (signer === undefined) return await authentication.refuse(context);
    authentication.count(`endpoint ${signer.endpointId}`);
    const body = () => (route.body === undefined ? undefined : parseBody(bytes, route.body));
    return await audited(options, route, context, signer, async () =>
      signed.handle({ signer, body: body() }),
    );
  }
  const principal = await authentication.authenticate(context);
  const caller = { principal: principal.id, project: principal.project };
  return await audited(options, route, context, caller, () => handle(options, route, principal, context));
}

/** Answers, and leaves the audit entry that the call must leave, whatever comes of it. */
async function audited(
  { audit, db }: AppOptions,
  route: Route,
  context: ApiContext,
  caller: { principal?: string; project: string; endpointId?: string },
  work: () => Promise<Answer>,
): Promise<Response> {
  const always = isAuditedRoute(route);
  const record = (entry: { outcome: "allowed" | "refused"; magnitude: number; endpointId?: string }) =>
    audit.record(db, { operation: route.operation, ...caller, ...entry });
  try {
    const result = await work();
    // Failure policy: fail closed — what cannot be audited is not answered.
    if (always && result.audited !== true) {
      const { magnitude, endpointId } = result;
      await record({ outcome: "allowed", magnitude, ...(endpointId === undefined ? {} : { endpointId }) });
    }
    context.header("Cache-Control", "no-store");
    return context.body(stringifyExact(result.body), 200, { "Content-Type": "application/json" });
  } catch (error) {
    if (error instanceof ApiError) {
      if (always || error.code === "forbidden") await record({ outcome: "refused", magnitude: 0 });
    } else if (always && !(error instanceof DatabaseUnavailable)) {
      // What failed unexpectedly is answered, and logged, as that, even where auditing it fails as well.
      await record({ outcome: "refused", magnitude: 0 }).catch(() => {});
    }
    throw error;
  }
}

/** The order is the contract's: 501 before anything else, access before the body is read. */
async function handle(options: AppOptions, route: Route, principal: Principal, context: ApiContext) {
  if (isNotificationRoute(route) && !options.notificationsOn) throw notificationsUnavailable();
  if (route.access === "read-write" && principal.access !== "read-write") {
    throw new ApiError("forbidden", "This credential may only read; use a read-write one.");
  }
  const body =
    route.body === undefined ? undefined : parseBody(await readBytes(context.env.incoming), route.body);
  return route.handle({ principal, body, gone: () => whenGone(context) });
}

/** The answer's end counts as well, and then changes nothing any more. */
function whenGone({ env: { outgoing } }: ApiContext): AbortSignal {
  const controller = new AbortController();
  if (outgoing.destroyed) controller.abort();
  else outgoing.once("close", () => controller.abort());
  return controller.signal;
}
