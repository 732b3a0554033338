// What every contender is to the measures: it is prepared on an empty database, owes deliveries, runs as a
// process of its own, and has one statement by which a writer advances a project.
import type pg from "pg";
import type { Owed } from "../check.ts";
import type { FreshDatabase } from "../database.ts";

export interface Endpoint {
  /** Its place in the receiver's records, and in the path of its URL. */
  number: number;
  scope: string;
  url: string;
}

/** One empty database and who is to be told. */
export interface Setup {
  database: FreshDatabase;
  ca: string;
  caFile: string;
  /** Of the receiver most endpoints are at. */
  origin: string;
  endpoints: Endpoint[];
  /** Attempts under way at once. */
  concurrency: number;
}

export interface Worker {
  pid: number;
  /** Where this product's HTTP server listens. */
  url?: string;
  stop(): Promise<void>;
}

export interface StartOptions {
  /** Settings of this product that the measure is about. */
  environment?: Record<string, string>;
}

export interface Peer {
  readonly name: string;
  /** For the head of the table. */
  readonly tuning: string;
  /** Makes its tables, the projects and the endpoints. */
  prepare(setup: Setup): Promise<void>;
  /** Offsets 0 to `each` - 1, owed to every endpoint. No worker runs. */
  owe(setup: Setup, each: number): Promise<void>;
  start(setup: Setup, options?: StartOptions): Promise<Worker>;
  /**
   * What it wrote down as owed, where that may be less than was advanced: of advances that it learned of
   * together only the newest need be told.
   */
  owed?(setup: Setup): Promise<Owed[]>;
  /** How often a delivery was claimed, on average: above 1, work was taken and given back. */
  claimsEach?(setup: Setup): Promise<number>;
  /** Advances a project and has its endpoints told, in one transaction and one round trip. */
  advance(setup: Setup, scope: string, offset: number): pg.QueryConfig;
}

/** 64 hex digits: every endpoint's. */
export const SECRET = "5e".repeat(32);

/** `count` endpoints over as many projects, at most `perProject` in one. */
export function endpointsAt(origin: string, count: number, perProject = 1, path = "e", from = 0): Endpoint[] {
  return Array.from({ length: count }, (_, index) => ({
    number: from + index,
    scope: `p${Math.floor((from + index) / perProject)}`,
    url: `${origin}/${path}/${from + index}`,
  }));
}

/** The watermarks and endpoints of the contenders that have none of their own. */
export async function prepareTables({ database, endpoints }: Setup): Promise<void> {
  await database.client.query(`
    CREATE SCHEMA bench;
    CREATE TABLE bench.watermark (scope text PRIMARY KEY, formed_through bigint, stored_through bigint,
                                  parked_turns integer NOT NULL DEFAULT 0);
    CREATE TABLE bench.endpoint (number integer PRIMARY KEY, scope text NOT NULL, path text NOT NULL);
    CREATE INDEX ON bench.endpoint (scope)`);
  await database.client.query(
    "INSERT INTO bench.endpoint SELECT * FROM unnest($1::integer[], $2::text[], $3::text[])",
    [
      endpoints.map(({ number }) => number),
      endpoints.map(({ scope }) => scope),
      endpoints.map(({ url }) => new URL(url).pathname),
    ],
  );
  await database.client.query(
    "INSERT INTO bench.watermark (scope) SELECT DISTINCT scope FROM bench.endpoint",
  );
}

/** The job for endpoint `e` and the watermark `m`: what a worker needs to make the body. */
export const JOB = `json_build_object('path', e.path, 'scope', e.scope, 'formedThrough', m.formed_through,
  'storedThrough', m.stored_through, 'parkedTurns', m.parked_turns,
  'occurredAt', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))`;

/** The first half of those contenders' `advance`; $1 is the scope, $2 the offset. */
export const MOVED = `moved AS (
  UPDATE bench.watermark SET formed_through = $2::bigint, stored_through = $2::bigint WHERE scope = $1::text
  RETURNING *
)`;
