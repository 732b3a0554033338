// The campaign's own way to the database: a question that a restart cut off is asked again until it is answered.
import { setTimeout as sleep } from "node:timers/promises";
import { type Database, DatabaseUnavailable, type Queryable } from "../../src/database/database.ts";

const LIMIT_MS = 30_000;
const AGAIN_MS = 100;

export function patient(db: Database): Queryable {
  return {
    async query(statement, values) {
      for (const deadline = performance.now() + LIMIT_MS; ; ) {
        try {
          return await db.query(statement, values);
        } catch (error) {
          if (!(error instanceof DatabaseUnavailable) || performance.now() > deadline) throw error;
          await sleep(AGAIN_MS);
        }
      }
    },
  };
}
