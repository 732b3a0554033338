// From settings to a database that is ready for use: embedded where none is named, migrated, pooled.
import { Database } from "../database/database.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../database/embedded.ts";
import { migrate } from "../database/migrate.ts";
import { type Namespace, namespace } from "../database/namespace.ts";
import type { Settings } from "../settings/settings.ts";
import { VERSION } from "./version.ts";

export const APPLICATION_NAME = `taisce-notify ${VERSION}`;

type ConnectionSettings = Pick<
  Settings,
  "databaseUrl" | "listenDatabaseUrl" | "dataDir" | "namespace" | "channel" | "listen" | "pool"
>;

export interface Connection {
  db: Database;
  /** A pool for the delivery engine on the same database, closed with this connection. */
  openEnginePool(max: number): Database;
  namespace: Namespace;
  /** A direct connection string, for LISTEN. */
  listenUrl: string;
  /** Whether the database is the embedded one, which belongs to this program alone. */
  embedded: boolean;
  close(): Promise<void>;
}

export interface ConnectOptions {
  /** `always` for the service; `embedded` migrates only a database that is this program's own. */
  migrate: "always" | "embedded";
  onProgress?: (message: string) => void;
  onIdleError?: (error: Error) => void;
}

/** How long closing waits for statements under way. */
const CLOSE_LIMIT_MS = 1_000;

/** @throws EmbeddedPostgresError, SchemaMismatch, or the connection's own error. */
export async function connect(settings: ConnectionSettings, options: ConnectOptions): Promise<Connection> {
  const { url, embedded } = await databaseUrl(settings, options.onProgress);
  try {
    const where = namespace(settings.namespace);
    if (options.migrate === "always" || embedded !== undefined) {
      const triggers = settings.listen ? "install" : "keep";
      const { applied } = await migrate({
        url,
        namespace: where,
        channel: settings.channel,
        triggers,
        applicationName: APPLICATION_NAME,
      });
      if (applied.length > 0) options.onProgress?.(`applied ${applied.join(", ")}`);
    }
    let closing = false;
    const { onIdleError } = options;
    const pools: Database[] = [];
    const openPool = (max: number, probesOnly = false) => {
      const pool = new Database({
        url,
        max,
        applicationName: APPLICATION_NAME,
        namedStatements: settings.listenDatabaseUrl === undefined,
        probesOnly,
        // While closing, connections end because they are meant to.
        onIdleError: (error) => {
          if (!closing) onIdleError?.(error);
        },
      });
      pools.push(pool);
      return pool;
    };
    return {
      db: openPool(settings.pool),
      openEnginePool: (max) => openPool(max, true),
      namespace: where,
      listenUrl: settings.listenDatabaseUrl ?? url,
      embedded: embedded !== undefined,
      async close() {
        closing = true;
        const closed = Promise.all(pools.map((pool) => pool.close()));
        await Promise.race([closed, new Promise((done) => setTimeout(done, CLOSE_LIMIT_MS).unref())]);
        await embedded?.close();
      },
    };
  } catch (error) {
    await embedded?.close();
    throw error;
  }
}

/** The database's address, and the embedded server where that is what it is. */
export async function databaseUrl(
  settings: Pick<Settings, "databaseUrl" | "dataDir">,
  onProgress?: (message: string) => void,
): Promise<{ url: string; embedded?: EmbeddedPostgres }> {
  if (settings.databaseUrl !== undefined) return { url: settings.databaseUrl };
  const embedded = await startEmbeddedPostgres({
    dataDir: settings.dataDir,
    ...(onProgress === undefined ? {} : { onProgress }),
  });
  return { url: embedded.url, embedded };
}
