// That a process uses the embedded server: a session that holds a shared advisory lock for as long as
// the process lives. Whoever gets the lock alone is the last user, and may stop the server.
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";

const PRESENCE_LOCK = 7_236_001;
/** Between attempts to get back to a server that ended all its sessions, as it does after a crash of one. */
const REJOIN_INTERVAL_MS = 200;

export class Presence {
  readonly #url: string;
  /** Undefined while the session is lost. */
  #client: pg.Client | undefined;
  #rejoining: Promise<void> | undefined;
  #leaving = false;

  private constructor(url: string, client: pg.Client) {
    this.#url = url;
    this.#keep(client);
  }

  /** @throws where the server cannot be reached, or was being stopped. */
  static async join(url: string): Promise<Presence> {
    return new Presence(url, await hold(url));
  }

  /** Gives the presence up, and calls `stopServer` where it was the last. Never throws. */
  async leave(stopServer: () => Promise<void>): Promise<void> {
    this.#leaving = true;
    await this.#rejoining;
    const client = this.#client ?? (await hold(this.#url).catch(() => undefined));
    try {
      await client?.query("SELECT pg_advisory_unlock_shared($1)", [PRESENCE_LOCK]);
      const result = await client?.query<{ last: boolean }>("SELECT pg_try_advisory_lock($1) AS last", [
        PRESENCE_LOCK,
      ]);
      if (result?.rows[0]?.last === true) await stopServer();
    } catch {
      // The server is gone already: nothing is left to stop.
    }
    await client?.end().catch(() => {});
  }

  #keep(client: pg.Client): void {
    this.#client = client;
    client.once("end", () => {
      this.#client = undefined;
      this.#rejoining = this.#rejoin();
    });
  }

  async #rejoin(): Promise<void> {
    while (!this.#leaving) {
      const client = await hold(this.#url).catch(() => undefined);
      if (client !== undefined) return this.#keep(client);
      await sleep(REJOIN_INTERVAL_MS);
    }
  }
}

async function hold(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    application_name: "taisce-notify presence",
    connectionTimeoutMillis: 5_000,
    keepAlive: true,
  });
  client.on("error", () => {});
  try {
    await client.connect();
    // Waits while the last user is stopping the server; the connection then breaks and the caller,
    // finding no server, starts one.
    await client.query("SELECT pg_advisory_lock_shared($1)", [PRESENCE_LOCK]);
    return client;
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
}
