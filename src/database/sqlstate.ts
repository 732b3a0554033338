// The PostgreSQL error codes this product acts on, by name, and the questions asked of an error.
// Codes: PostgreSQL documentation, appendix A.
import pg from "pg";

export const SQLSTATE = {
  foreignKeyViolation: "23503",
  uniqueViolation: "23505",
  undefinedTable: "42P01",
  undefinedSchema: "3F000",
  insufficientPrivilege: "42501",
  serializationFailure: "40001",
  deadlockDetected: "40P01",
  lockNotAvailable: "55P03",
  tooManyConnections: "53300",
  queryCanceled: "57014",
  noData: "P0002",
} as const;

/** The SQLSTATE of an error that PostgreSQL reported; undefined for every other kind of error. */
export function sqlState(error: unknown): string | undefined {
  return error instanceof pg.DatabaseError ? error.code : undefined;
}

/** PostgreSQL undid the statement in favour of another; doing it again may succeed at once. */
export function isConflict(error: unknown): boolean {
  const state = sqlState(error);
  return state === SQLSTATE.serializationFailure || state === SQLSTATE.deadlockDetected;
}

const UNAVAILABLE: string[] = [
  SQLSTATE.tooManyConnections,
  SQLSTATE.queryCanceled,
  SQLSTATE.lockNotAvailable,
];

/**
 * Nothing is wrong with the statement: the server could not be reached, has no room for a connection, went
 * away, or a time limit ended the wait. SQLSTATE classes 08 (connection) and 57P (operator intervention)
 * count, and 53300, 57014 and 55P03.
 */
export function isUnavailableState(state: string): boolean {
  return state.startsWith("08") || state.startsWith("57P") || UNAVAILABLE.includes(state);
}

/** PostgreSQL refuses the values themselves (classes 22, data, and 23, constraints): no retry helps. */
export function refusesValues(error: unknown): boolean {
  const state = sqlState(error);
  return state !== undefined && (state.startsWith("22") || state.startsWith("23"));
}

/** Whether a constraint of this name refused it; one that a trigger keeps says so by its error's own field. */
export function breaksConstraint(error: unknown, name: string): boolean {
  return error instanceof pg.DatabaseError && error.constraint === name;
}
