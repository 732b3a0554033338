// The PostgreSQL schema that holds everything, as a value that can only exist validated, so that a
// query built with it is always qualified and quoted.

/** Contract section 2. Lower case only: a name that never needs quoting to mean itself. */
export const NAMESPACE_PATTERN = /^[a-z][a-z0-9_]{0,39}$/;

/** A validated schema name; `sql` is the quoted identifier to put before a table's name. */
export interface Namespace {
  readonly name: string;
  readonly sql: string;
}

/** @throws RangeError where the name is not a valid namespace. */
export function namespace(name: string): Namespace {
  if (!NAMESPACE_PATTERN.test(name)) {
    throw new RangeError(`namespace must match ${NAMESPACE_PATTERN.source}`);
  }
  return { name, sql: `"${name}"` };
}
