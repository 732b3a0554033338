// Statements that wait for each other, where the database's default isolation makes who waited fail instead.
import { isConflict } from "../database/sqlstate.ts";

/** Each time at least one of those who dispute gets through, and a pool lets no more than this many try at once. */
const MOST_TRIES = 100;

/**
 * At READ COMMITTED, a statement that waited for another's row goes on with what that left. At a stricter
 * default of the role or database it is undone, and has to be run again.
 */
export async function undisputed<Result>(run: () => Promise<Result>): Promise<Result> {
  for (let tries = 1; ; tries++) {
    try {
      return await run();
    } catch (error) {
      if (!isConflict(error) || tries === MOST_TRIES) throw error;
    }
  }
}
