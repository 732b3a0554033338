// The memory services: one writer a project, each advancing its watermark at a steady rate on a session of
// its own, straight to PostgreSQL. An advance counts once COMMIT was answered; where no answer came, the
// database is asked afterwards what became of it.
import { setTimeout as sleep } from "node:timers/promises";
import pg from "pg";
import type { Namespace } from "../../src/database/namespace.ts";

export interface Acknowledged {
  formedThrough: bigint;
  /** When the answer to COMMIT was there, or the database said that it had committed; Unix ms. */
  at: number;
}

const AGAIN_MS = 20;

export class Writer {
  readonly scope: string;
  readonly acknowledged: Acknowledged[] = [];
  readonly #url: string;
  readonly #schema: string;
  /** Whether it keeps its own log and reports, or has turns stored and formed here. */
  readonly #reports: boolean;
  #client: pg.Client | undefined;
  #stopped = false;
  #running: Promise<void> | undefined;

  constructor(options: { scope: string; url: string; namespace: Namespace; reports: boolean }) {
    this.scope = options.scope;
    this.#url = options.url;
    this.#schema = options.namespace.sql;
    this.#reports = options.reports;
  }

  /** Advances `perSecond` times a second until it is stopped. */
  start(perSecond: number): void {
    this.#running = this.#run(1_000 / perSecond);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
    await this.#client?.end().catch(() => {});
  }

  async #run(intervalMs: number): Promise<void> {
    let next = performance.now() + Math.random() * intervalMs;
    while (!this.#stopped) {
      const wait = next - performance.now();
      // What an outage kept from being written is not made up for: the rate is a ceiling.
      next = Math.max(next + intervalMs, performance.now());
      if (wait > 0) await sleep(wait);
      await this.advance();
    }
  }

  /** One advance; comes back when it has been committed, or the writer was stopped. */
  async advance(): Promise<void> {
    const before = this.acknowledged.at(-1)?.formedThrough ?? -1n;
    for (let inDoubt = false; ; inDoubt = true) {
      try {
        const client = await this.#connected();
        const through = (inDoubt ? await this.#formedThrough(client) : undefined) ?? -1n;
        const formedThrough = through > before ? through : await this.#commit(client, before + 1n);
        this.acknowledged.push({ formedThrough, at: Date.now() });
        return;
      } catch (error) {
        const refused = error instanceof pg.DatabaseError && !/^(57P|40|08|53|55)/.test(error.code ?? "");
        if (refused) throw error;
        if (this.#stopped) return;
        await sleep(AGAIN_MS);
      }
    }
  }

  async #commit(client: pg.Client, wanted: bigint): Promise<bigint> {
    if (this.#reports) {
      await client.query(`SELECT ${this.#schema}.advance_watermark($1, $2)`, [this.scope, wanted]);
      return wanted;
    }
    try {
      await client.query("BEGIN");
      await client.query(`SELECT ${this.#schema}.form_turn($1, ${this.#schema}.append_turn($1))`, [
        this.scope,
      ]);
      await client.query("COMMIT");
      return wanted;
    } catch (error) {
      await client.query("ROLLBACK");
      throw error;
    }
  }

  async #formedThrough(client: pg.Client): Promise<bigint | undefined> {
    const { rows } = await client.query<{ formed: string | null }>(
      `SELECT formed_through::text AS formed FROM ${this.#schema}.watermark WHERE scope = $1`,
      [this.scope],
    );
    const formed = rows[0]?.formed;
    return formed === null || formed === undefined ? undefined : BigInt(formed);
  }

  async #connected(): Promise<pg.Client> {
    if (this.#client !== undefined) return this.#client;
    const client = new pg.Client({
      connectionString: this.#url,
      application_name: "faults writer",
      connectionTimeoutMillis: 5_000,
    });
    client.on("error", () => {});
    client.once("end", () => {
      if (this.#client === client) this.#client = undefined;
    });
    await client.connect();
    this.#client = client;
    return client;
  }
}
