// The producer's side of the service: the SQL functions of the namespace, called with checked values.

import type { Queryable, Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { SQLSTATE, sqlState } from "../database/sqlstate.ts";

/** Where a project's log stands; null until the first turn is stored, or formed. */
export interface Freshness {
  scope: string;
  stored: bigint | null;
  formed: bigint | null;
  parked: number;
}

/** The project or the turn does not exist; the message is PostgreSQL's own and names both. */
export class FormationError extends Error {
  override readonly name = "FormationError";
}

export interface Advance {
  formedThrough: bigint;
  storedThrough?: bigint | undefined;
  parkedTurns?: number | undefined;
}

export class Formation {
  readonly #db: Queryable;
  readonly #schema: string;
  readonly #freshness: Statement;

  constructor(db: Queryable, namespace: Namespace) {
    this.#db = db;
    this.#schema = namespace.sql;
    this.#freshness = {
      name: `${namespace.name}.freshness`,
      // Index watermark_pkey; no row: no such project.
      text: `SELECT scope, stored_through AS stored, formed_through AS formed, parked_turns AS parked
             FROM ${namespace.sql}.watermark WHERE scope = $1`,
    };
  }

  /** @throws FormationError where there is no such project. */
  async freshness(scope: string): Promise<Freshness> {
    const [row] = await this.#db.query<Freshness & Record<string, unknown>>(this.#freshness, [scope]);
    if (row === undefined) throw new FormationError(`project "${scope}" does not exist`);
    return row;
  }

  /** Stores `count` turns; the offsets they got, in order. @throws FormationError */
  async append(scope: string, count = 1): Promise<bigint[]> {
    return this.#call<bigint>(
      `SELECT ${this.#schema}.append_turn($1) AS result FROM generate_series(1, $2::integer)`,
      [scope, count],
    );
  }

  /** Marks one turn formed; how far the project has formed then. @throws FormationError */
  async form(scope: string, offset: bigint): Promise<bigint | null> {
    const [through] = await this.#call<bigint | null>(`SELECT ${this.#schema}.form_turn($1, $2) AS result`, [
      scope,
      offset,
    ]);
    return through ?? null;
  }

  /** Gives one turn up; how far the project has formed then. @throws FormationError */
  async park(scope: string, offset: bigint): Promise<bigint | null> {
    const [through] = await this.#call<bigint | null>(`SELECT ${this.#schema}.park_turn($1, $2) AS result`, [
      scope,
      offset,
    ]);
    return through ?? null;
  }

  /** Moves the watermark forward; false where nothing moved. @throws FormationError */
  async advance(scope: string, advance: Advance): Promise<boolean> {
    const [moved] = await this.#call<boolean>(
      `SELECT ${this.#schema}.advance_watermark($1, $2, $3, $4) AS result`,
      [scope, advance.formedThrough, advance.storedThrough ?? null, advance.parkedTurns ?? null],
    );
    return moved ?? false;
  }

  async #call<Result>(text: string, values: unknown[]): Promise<Result[]> {
    try {
      const rows = await this.#db.query<{ result: Result }>(text, values);
      return rows.map(({ result }) => result);
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.noData) throw error;
      throw new FormationError((error as Error).message, { cause: error });
    }
  }
}
