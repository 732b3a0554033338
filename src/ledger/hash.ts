// The hash of a delivery's variables: SHA-256 over their canonical JSON, so that two ways to write the same
// variables are the same variables.
import { hash } from "node:crypto";

/** Deeper than anything that is meant, and far from the end of the stack. */
export const MAX_DEPTH = 100;

/** Combining marks in a row, more than any script writes; normalising takes the square of their number. */
const TOO_MANY_MARKS = /\p{M}{31}/u;
const ASCII = /^[\x20-\x7e]*$/;

/** Variables that have no canonical form; the message says why. */
export class VariablesError extends Error {
  override readonly name = "VariablesError";
}

/** Lower-case hex. @throws VariablesError */
export function variablesHash(variables: unknown): string {
  return hash("sha256", canonicalJson(variables));
}

/**
 * RFC 8785 with two differences: integers are written in all their digits, whatever their size, since here
 * they are exact; and strings are in Unicode's composed form (NFC), so that an é is an é.
 *
 * @throws VariablesError
 */
export function canonicalJson(value: unknown, depth = 0): string {
  if (depth > MAX_DEPTH) throw new VariablesError(`must not be nested deeper than ${MAX_DEPTH} levels`);
  switch (typeof value) {
    case "string":
      return JSON.stringify(composed(value));
    case "bigint":
      return value.toString();
    case "number":
      // What JSON.parse makes of a number beyond a double's range.
      if (!Number.isFinite(value)) throw new VariablesError("must not hold a number beyond a double's range");
      return Number.isInteger(value) ? BigInt(value).toString() : String(value);
    case "object":
      if (value === null) return "null";
      return Array.isArray(value)
        ? `[${value.map((member) => canonicalJson(member, depth + 1)).join(",")}]`
        : objectJson(value, depth);
    default:
      return value === true ? "true" : "false";
  }
}

/** Members by their names' UTF-16 code units; names that NFC makes equal keep the order of what they were. */
function objectJson(value: object, depth: number): string {
  const members = Object.entries(value)
    .map(([name, member]) => ({ name: composed(name), given: name, member }))
    .sort((one, other) => order(one.name, other.name) || order(one.given, other.given))
    .map(({ name, member }) => `${JSON.stringify(name)}:${canonicalJson(member, depth + 1)}`);
  return `{${members.join(",")}}`;
}

function composed(text: string): string {
  if (ASCII.test(text)) return text;
  if (TOO_MANY_MARKS.test(text))
    throw new VariablesError("must not hold more than 30 combining marks in a row");
  return text.normalize("NFC");
}

function order(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
