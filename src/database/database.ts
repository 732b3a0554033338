// The connection pool behind a small surface: int8 as BigInt, time limits on every wait, one error for
// "the database cannot be had", and listeners wherever a vanished backend would end the process.
import pg from "pg";
import { isUnavailableState, sqlState } from "./sqlstate.ts";

/** How long a caller waits for a free connection before `DatabaseUnavailable`. */
export const ACQUIRE_TIMEOUT_MS = 2_000;

/**
 * How long one statement may take. The client enforces it, since a server's limit says nothing on a
 * connection that went silent; where nothing stands in between, the server does too.
 */
const QUERY_TIMEOUT_MS = 10_000;

/**
 * READ COMMITTED, whatever the role's or the database's default: what is read after a lock was waited for is read
 * as it is then. And the server's own limits, for when this side of the link goes silent: what waits or idles in a transaction
 * holds locks that others wait for. Set in each transaction, which a transaction pooler passes on.
 */
const BEGIN = `BEGIN ISOLATION LEVEL READ COMMITTED;
  SET LOCAL statement_timeout = '10s'; SET LOCAL lock_timeout = '5s';
  SET LOCAL idle_in_transaction_session_timeout = '10s'`;

/** What pg says when a statement took longer than QUERY_TIMEOUT_MS; it has no code of its own. */
const GIVEN_UP = "Query read timeout";

const PROBES_ONLY = `SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off;
  SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off`;

const INT8 = 20;

/** A statement that is run again and again: its name lets PostgreSQL keep its plan. */
export interface Statement {
  readonly name: string;
  readonly text: string;
}

/** A pool, or one connection inside a transaction. */
export interface Queryable {
  /** @throws DatabaseUnavailable, or PostgreSQL's own error with its SQLSTATE. */
  query<Row extends pg.QueryResultRow>(statement: Statement | string, values?: unknown[]): Promise<Row[]>;
}

/** No connection was free in time, or the server went away: try again later. */
export class DatabaseUnavailable extends Error {
  override readonly name = "DatabaseUnavailable";
  constructor(cause: unknown) {
    super("the database cannot be reached or has no connection free", { cause });
  }
}

export interface DatabaseOptions {
  url: string;
  max: number;
  applicationName: string;
  /** How long one statement may take; ten seconds unless given. */
  queryTimeoutMs?: number;
  /** Off behind a transaction pooler, where a name may belong to another client's statement. */
  namedStatements?: boolean;
  /**
   * On where every statement is a chain of index probes: plans are then made once and of nothing else. Made while
   * a table is nearly empty, a plan would otherwise read all of it later, until the next ANALYZE. Without
   * effect where statements are not named: what is set on a connection would reach a pooler's other clients.
   */
  probesOnly?: boolean;
  /** Told about connections that end while nobody uses them. */
  onIdleError?: (error: Error) => void;
}

const types: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: "text" | "binary") =>
    oid === INT8 && format !== "binary"
      ? BigInt
      : pg.types.getTypeParser(oid, format as "text")) as pg.CustomTypesConfig["getTypeParser"],
};

export class Database implements Queryable {
  readonly #pool: pg.Pool;
  readonly #named: boolean;

  /** Opens nothing yet: connections are made when they are first needed. */
  constructor(options: DatabaseOptions) {
    this.#named = options.namedStatements ?? true;
    this.#pool = new pg.Pool({
      connectionString: options.url,
      max: options.max,
      application_name: options.applicationName,
      connectionTimeoutMillis: ACQUIRE_TIMEOUT_MS,
      query_timeout: options.queryTimeoutMs ?? QUERY_TIMEOUT_MS,
      // Given up by the client alone, a statement would go on waiting at the server. These are start-up
      // parameters, which a transaction pooler refuses.
      ...(this.#named ? { statement_timeout: options.queryTimeoutMs ?? QUERY_TIMEOUT_MS } : {}),
      keepAlive: true,
      keepAliveInitialDelayMillis: 10_000,
      idleTimeoutMillis: 60_000,
      types,
      ...(this.#named && options.probesOnly === true
        ? { onConnect: async (client: pg.ClientBase) => void (await client.query(PROBES_ONLY)) }
        : {}),
    });
    this.#pool.on("error", (error) => options.onIdleError?.(error));
    // A client in use has no listener of the pool's; without one of ours a killed backend is an
    // uncaught exception. Its query rejects all the same, so there is nothing more to do here.
    this.#pool.on("connect", (client) => client.on("error", () => {}));
  }

  query<Row extends pg.QueryResultRow>(statement: Statement | string, values?: unknown[]): Promise<Row[]> {
    return this.#run<Row>(this.#pool, statement, values);
  }

  /** Runs `work` in one transaction; whatever it throws rolls it back and is thrown on. */
  async transaction<Result>(work: (transaction: Queryable) => Promise<Result>): Promise<Result> {
    const client = await this.#pool.connect().catch((error: unknown) => {
      throw asUnavailable(error);
    });
    let broken: Error | undefined;
    try {
      const transaction: Queryable = {
        query: (statement, values) => this.#run(client, statement, values),
      };
      await transaction.query(BEGIN);
      const result = await work(transaction);
      await transaction.query("COMMIT");
      return result;
    } catch (error) {
      // A statement that was given up is still under way, and a ROLLBACK would only wait behind it:
      // the connection is closed instead, which undoes the transaction as well.
      if (error instanceof DatabaseUnavailable) broken = error;
      else {
        await client.query("ROLLBACK").catch((failure: Error) => {
          broken = failure;
        });
      }
      throw error;
    } finally {
      // A connection whose ROLLBACK did not go through is not given to the next caller.
      client.release(broken);
    }
  }

  /** Waits for queries under way and closes every connection. */
  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #run<Row extends pg.QueryResultRow>(
    target: pg.Pool | pg.PoolClient,
    statement: Statement | string,
    values: unknown[] | undefined,
  ): Promise<Row[]> {
    const config: pg.QueryConfig =
      typeof statement === "string"
        ? { text: statement }
        : this.#named
          ? { name: statement.name, text: statement.text }
          : { text: statement.text };
    if (values !== undefined) config.values = values;
    try {
      return (await target.query<Row>(config)).rows;
    } catch (error) {
      if (error instanceof Error && error.message === GIVEN_UP) this.#dropIdle();
      throw asUnavailable(error);
    }
  }

  /**
   * The server said nothing in time: if that is the link, it is dead under the other connections as well, and each
   * would cost a statement its whole time limit to find out. If not, they are opened anew.
   */
  #dropIdle(): void {
    for (let left = this.#pool.idleCount; left > 0; left--) {
      this.#pool.connect().then(
        (client) => client.release(true),
        () => {},
      );
    }
  }
}

/** PostgreSQL's own errors stay as they are; sockets, time limits and shutdowns become one error. */
function asUnavailable(error: unknown): unknown {
  const state = sqlState(error);
  if (state !== undefined && !isUnavailableState(state)) return error;
  return new DatabaseUnavailable(error);
}
