// JSON in which integers are exact over the whole bigint range: a number that a double cannot hold
// exactly is read as a BigInt, and a BigInt is written as the integer it is.

declare global {
  interface JSON {
    /** ECMAScript proposal "JSON.parse source text access", in V8 since 11.4 (Node 21). */
    rawJSON(text: string): object;
  }
}

const INTEGER = /^-?\d+$/;

/** Like JSON.parse; integers beyond 2^53 come out as BigInt. @throws SyntaxError */
export function parseExact(text: string): unknown {
  return JSON.parse(text, reviveNumber as (this: unknown, key: string, value: unknown) => unknown);
}

function reviveNumber(_key: string, value: unknown, context: { source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const { source } = context;
  return source !== undefined && INTEGER.test(source) ? BigInt(source) : value;
}

/** Like JSON.stringify; BigInt comes out as an integer. */
export function stringifyExact(value: unknown, indent?: number): string {
  return JSON.stringify(
    value,
    (_key, member: unknown) => (typeof member === "bigint" ? JSON.rawJSON(member.toString()) : member),
    indent,
  );
}
