// The service as a whole: what is started, in which order, and how it is stopped.
import { createApp } from "../api/app.ts";
import { Authentication } from "../api/authentication.ts";
import { formationRoutes } from "../api/formation-routes.ts";
import { groupRoutes } from "../api/group-routes.ts";
import { notificationRoutes } from "../api/notification-routes.ts";
import { Audit } from "../audit/audit.ts";
import { Credentials } from "../credentials/credentials.ts";
import { createSender, type Sender } from "../egress/index.ts";
import { Formation } from "../formation/formation.ts";
import { GroupReaders } from "../ledger/group-readers.ts";
import { Groups, handoffChannel } from "../ledger/groups.ts";
import { DeliveryList } from "../notifications/delivery-list.ts";
import { Endpoints } from "../notifications/endpoints.ts";
import { Projects } from "../projects/projects.ts";
import type { Settings } from "../settings/settings.ts";
import { Listener } from "../signals/listener.ts";
import type { Logger } from "../telemetry/log.ts";
import { Metrics } from "../telemetry/metrics.ts";
import { APPLICATION_NAME, type Connection, connect } from "./connection.ts";
import { Engine } from "./engine.ts";
import { startHttpServer } from "./http-server.ts";
import { type LedgerParts, ledgerParts } from "./ledger-parts.ts";
import { VERSION } from "./version.ts";

export interface Service {
  /** Where the API answers, such as `http://127.0.0.1:8080`. */
  url: string;
  /** On the first start of an embedded database: a project to begin with, and its token, shown once. */
  first?: { project: string; token: string };
  /** Drains and stops; a second call waits for the first. */
  stop(): Promise<void>;
}

/** @throws EmbeddedPostgresError, SchemaMismatch, ListenError or the database's own; nothing is left running then. */
export async function startService(settings: Settings, log: Logger): Promise<Service> {
  const connection = await connect(
    { ...settings, pool: sharePool(settings).api },
    {
      migrate: "always",
      onProgress: (message) => log.info(message),
      onIdleError: (error) => log.warn({ err: error }, "an idle database connection ended"),
    },
  );
  const stops: (() => Promise<void>)[] = [() => connection.close()];
  const stop = async () => {
    for (const one of stops.toReversed()) {
      // One part that cannot stop must not keep the next from it.
      await one().catch((error: unknown) => log.error({ err: error }, "a part did not stop cleanly"));
    }
  };
  try {
    return await startParts(settings, connection, log, stops, stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function startParts(
  settings: Settings,
  connection: Connection,
  log: Logger,
  stops: (() => Promise<void>)[],
  stop: () => Promise<void>,
): Promise<Service> {
  const { db, namespace } = connection;
  const metrics = new Metrics();
  const sender = createSender({
    destinations: settings.destinations,
    permitPrivate: settings.permitPrivate,
    timeoutMs: settings.timeoutMs,
    userAgent: `taisce-notify/${VERSION}`,
    connectionsPerOrigin: settings.concurrency,
    ...(settings.extraCa === undefined ? {} : { extraCa: settings.extraCa }),
  });
  stops.push(() => sender.close());

  const notificationsOn = hasDestinations(settings);
  const groups = new Groups(namespace, settings.listen);
  const readers = new GroupReaders({ db, groups, log });
  const hearReaders = {
    channel: { name: handoffChannel(namespace), onPayload: (text: string) => readers.hear(text) },
    onUp: () => void readers.look(),
  };
  const mayWait = settings.role !== "worker" && !settings.groups.empty;
  if (mayWait) metrics.watchReaders(readers);
  let engine: Engine | undefined;
  if (settings.role !== "api" && notificationsOn) {
    const db = connection.openEnginePool(sharePool(settings).engine);
    const alsoHear = mayWait ? hearReaders : undefined;
    engine = new Engine({ ...connection, db, sender, settings, alsoHear, metrics, log });
  }
  if (!notificationsOn) {
    log.warn(
      "notifications are off: TAISCE_NOTIFY_DESTINATIONS names no host or group that projects may send to",
    );
  }

  const audit = new Audit(namespace);
  const ledger = ledgerParts({ settings, connection, audit, sender, groups, log });
  const app = createApp({
    ...(settings.role === "worker"
      ? { routes: [] }
      : apiParts(settings, connection, audit, sender, readers, ledger, engine)),
    audit,
    db,
    notificationsOn,
    readiness: async () => {
      const database = await db.query("SELECT 1").then(
        () => "up" as const,
        () => "down" as const,
      );
      return { ready: database === "up", database, listener: engine?.listener ?? "off" };
    },
    version: VERSION,
    metrics,
    log,
  });
  // Without an engine there is no session yet on which readers could be woken.
  const listener =
    mayWait && engine === undefined && settings.listen
      ? new Listener({
          url: connection.listenUrl,
          channels: [hearReaders.channel],
          applicationName: `${APPLICATION_NAME} listener`,
          onUp: hearReaders.onUp,
          onDown: () => {},
          log,
        })
      : undefined;
  const server = await startHttpServer(app, settings.host, settings.port);
  // Both at once: requests and deliveries under way finish beside each other.
  stops.push(async () => {
    readers.stop();
    await Promise.all([server.close(), engine?.stop(), listener?.stop(), ledger.stop()]);
  });
  engine?.start();
  ledger.start();
  listener?.start();
  // Last, so that no failed start has made a token that nobody was shown.
  const first = connection.embedded ? await firstProject(connection) : undefined;
  log.info({ url: server.url, role: settings.role, version: VERSION }, "serving");

  let stopping: Promise<void> | undefined;
  return {
    url: server.url,
    ...(first === undefined ? {} : { first }),
    stop() {
      stopping ??= stop();
      return stopping;
    },
  };
}

function apiParts(
  settings: Settings,
  { db, namespace }: Connection,
  audit: Audit,
  sender: Sender,
  readers: GroupReaders,
  ledger: LedgerParts,
  engine: Engine | undefined,
) {
  return {
    routes: [
      ...notificationRoutes({
        endpoints: new Endpoints(db, namespace, audit),
        deliveryList: new DeliveryList(db, namespace),
        sender,
        groups: settings.groups,
        onDisabled: (endpointId) => engine?.forget(endpointId),
      }),
      ...formationRoutes(new Formation(db, namespace)),
      ...ledger.routes,
      ...groupRoutes({ permitted: settings.groups, readers }),
    ],
    authentication: new Authentication({
      db,
      credentials: new Credentials(db, namespace),
      audit,
      rateLimit: settings.rateLimit,
    }),
  };
}

/**
 * Half and half: requests that are slow or many must not keep deliveries from the database. A worker's only
 * other question is whether the database is there.
 */
function sharePool(settings: Settings): { api: number; engine: number } {
  const { pool, role } = settings;
  if (role === "api" || !hasDestinations(settings)) return { api: pool, engine: 0 };
  const api = role === "worker" ? 1 : Math.max(1, Math.floor(pool / 2));
  return { api, engine: Math.max(1, pool - api) };
}

/** Whether the operator lets projects be told anywhere: at a host, or by a group. */
function hasDestinations({ destinations, groups }: Settings): boolean {
  return !destinations.empty || !groups.empty;
}

/** On an empty embedded database: the project `default` with one read-write credential. */
async function firstProject({ db, namespace }: Connection): Promise<Service["first"]> {
  const project = await new Projects(db, namespace).createFirst("default");
  if (project === undefined) return undefined;
  const { token } = await new Credentials(db, namespace).issue("first", project.scope, "read-write");
  return { project: project.scope, token };
}
