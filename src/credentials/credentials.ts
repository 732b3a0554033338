// Credentials: who may speak for a project. A token is shown once; only its SHA-256 is stored.
import { randomUUID } from "node:crypto";
import type { Queryable, Statement } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { SQLSTATE, sqlState } from "../database/sqlstate.ts";
import { newToken, tokenDigest } from "./token.ts";

export type Access = "read-write" | "read-only";

export interface Credential {
  id: string;
  name: string;
  project: string;
  access: Access;
  created_at: Date;
  revoked_at: Date | null;
}

/** Whom a token turned out to be; `live` is false for a revoked credential or a suspended project. */
export interface Principal {
  id: string;
  project: string;
  access: Access;
  live: boolean;
}

/** What was asked cannot be done; the message is for people. */
export class CredentialError extends Error {
  override readonly name = "CredentialError";
}

const COLUMNS = "credential_id AS id, name, scope AS project, access, created_at, revoked_at";
const UUID_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

export class Credentials {
  readonly #db: Queryable;
  readonly #table: string;
  readonly #find: Statement;

  constructor(db: Queryable, namespace: Namespace) {
    this.#db = db;
    this.#table = `${namespace.sql}.credential`;
    this.#find = {
      name: `${namespace.name}.credential.find`,
      // Index credential_token_sha256_key; no row: nobody has this token.
      text: `SELECT c.credential_id AS id, c.scope AS project, c.access,
                    c.revoked_at IS NULL AND p.suspended_at IS NULL AS live
             FROM ${this.#table} c JOIN ${namespace.sql}.project p ON p.scope = c.scope
             WHERE c.token_sha256 = $1`,
    };
  }

  /** @throws CredentialError where the project does not exist or the name is empty or too long. */
  async issue(name: string, project: string, access: Access): Promise<Credential & { token: string }> {
    if (name === "" || Buffer.byteLength(name) > 200) {
      throw new CredentialError("a credential's name is 1 to 200 bytes long");
    }
    const token = newToken();
    try {
      const [row] = await this.#db.query<Credential>(
        `INSERT INTO ${this.#table} (credential_id, scope, name, access, token_sha256)
         VALUES ($1, $2, $3, $4, $5) RETURNING ${COLUMNS}`,
        [randomUUID(), project, name, access, tokenDigest(token)],
      );
      return { ...(row as Credential), token };
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.foreignKeyViolation) throw error;
      throw new CredentialError(`project "${project}" does not exist; create it first`);
    }
  }

  async list(project?: string): Promise<Credential[]> {
    return this.#db.query<Credential>(
      `SELECT ${COLUMNS} FROM ${this.#table} WHERE $1::text IS NULL OR scope = $1 ORDER BY created_at, credential_id`,
      [project ?? null],
    );
  }

  /** Takes effect at the next request; revoking twice keeps the first time. @throws CredentialError */
  async revoke(id: string): Promise<Credential> {
    const [row] = UUID_PATTERN.test(id)
      ? await this.#db.query<Credential>(
          `UPDATE ${this.#table} SET revoked_at = COALESCE(revoked_at, now()) WHERE credential_id = $1 RETURNING ${COLUMNS}`,
          [id],
        )
      : [];
    if (row === undefined) throw new CredentialError(`there is no credential ${id}`);
    return row;
  }

  /** Looks a token up by its `tokenDigest`; undefined where nobody has it. */
  async find(digest: Buffer): Promise<Principal | undefined> {
    const [principal] = await this.#db.query<Principal>(this.#find, [digest]);
    return principal;
  }
}
