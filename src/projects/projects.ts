// Projects: one row each, named by their scope.

import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { SQLSTATE, sqlState } from "../database/sqlstate.ts";

/** Contract section 2. */
export const SCOPE_PATTERN = /^[a-z][a-z0-9_]{0,62}$/;

export interface Project {
  scope: string;
  label: string | null;
  created_at: Date;
  suspended_at: Date | null;
}

/** The project does not exist, exists already, or its name is not one; the message says which. */
export class ProjectError extends Error {
  override readonly name = "ProjectError";
}

const COLUMNS = "scope, label, created_at, suspended_at";

export class Projects {
  readonly #db: Queryable;
  readonly #table: string;

  constructor(db: Queryable, namespace: Namespace) {
    this.#db = db;
    this.#table = `${namespace.sql}.project`;
  }

  /** @throws ProjectError where the scope is malformed or taken. */
  async create(scope: string, label?: string): Promise<Project> {
    if (!SCOPE_PATTERN.test(scope)) {
      throw new ProjectError(`"${scope}" cannot name a project: it must match ${SCOPE_PATTERN.source}`);
    }
    if (label !== undefined && Buffer.byteLength(label) > 200) {
      throw new ProjectError("a label is at most 200 bytes long");
    }
    try {
      const [row] = await this.#db.query<Project>(
        `INSERT INTO ${this.#table} (scope, label) VALUES ($1, $2) RETURNING ${COLUMNS}`,
        [scope, label ?? null],
      );
      return row as Project;
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.uniqueViolation) throw error;
      throw new ProjectError(`project "${scope}" exists already`);
    }
  }

  /** Creates the project where the namespace holds none at all; undefined where it holds any. */
  async createFirst(scope: string): Promise<Project | undefined> {
    const [row] = await this.#db.query<Project>(
      `INSERT INTO ${this.#table} (scope) SELECT $1 WHERE NOT EXISTS (SELECT FROM ${this.#table})
       ON CONFLICT DO NOTHING RETURNING ${COLUMNS}`,
      [scope],
    );
    return row;
  }

  async list(): Promise<Project[]> {
    return this.#db.query<Project>(`SELECT ${COLUMNS} FROM ${this.#table} ORDER BY created_at, scope`);
  }

  /** Refuses the project's credentials from now on; suspending twice keeps the first time. */
  async suspend(scope: string): Promise<Project> {
    return this.#update(scope, "suspended_at = COALESCE(suspended_at, now())");
  }

  async resume(scope: string): Promise<Project> {
    return this.#update(scope, "suspended_at = NULL");
  }

  /** @throws ProjectError where there is no such project. */
  async #update(scope: string, change: string): Promise<Project> {
    const [row] = await this.#db.query<Project>(
      `UPDATE ${this.#table} SET ${change} WHERE scope = $1 RETURNING ${COLUMNS}`,
      [scope],
    );
    if (row === undefined) throw new ProjectError(`project "${scope}" does not exist`);
    return row;
  }
}
