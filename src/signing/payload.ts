// Reads the body of a notification for receivers, with offsets exact over the whole bigint range: a plain
// JSON.parse rounds them above 2^53.

/** The version this reader knows. Another one has other fields, and is refused. */
export const PAYLOAD_VERSION = "taisce-notification/v1";

/** What a notification says: project `scope` has formed everything up to and including `formedThrough`. */
export interface Payload {
  readonly version: typeof PAYLOAD_VERSION;
  readonly scope: string;
  /** Highest offset with nothing unformed at or below it. Keep the highest one seen; ignore lower ones. */
  readonly formedThrough: bigint;
  /** Highest offset stored when the notification was made. */
  readonly storedThrough: bigint;
  /** How many turns formation had given up on; they do not hold `formedThrough` back. */
  readonly parkedTurns: number;
  /** When the advance was recorded, to the second; the same on every attempt. */
  readonly occurredAt: Date;
}

/** A body that is not a notification. The message names the field, and repeats nothing of the body. */
export class PayloadError extends Error {
  override readonly name = "PayloadError";
}

const FIELDS = [
  "version",
  "scope",
  "formed_through",
  "stored_through",
  "parked_turns",
  "occurred_at",
] as const;
type Field = (typeof FIELDS)[number];

const SCOPE = /^[a-z][a-z0-9_]{0,62}$/;
const INTEGER = /^(?:0|[1-9][0-9]{0,18})$/;
const SECOND = /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$/;
const MAX_OFFSET = 2n ** 63n - 1n;
const MAX_TURNS = 2n ** 31n - 1n;

/**
 * Parses a verified body. Exactly the six fields of `taisce-notification/v1` are taken, in any order.
 *
 * Verify first: this says whether a body is well formed, not who sent it. Throws a `PayloadError` for anything
 * that is not such a notification.
 *
 * @example
 * const { scope, formedThrough } = parsePayload(body);
 */
export function parsePayload(body: string | Uint8Array): Payload {
  const fields = parseFields(body);
  if (fields.version !== PAYLOAD_VERSION) throw wrong("version", `is not ${PAYLOAD_VERSION}`);
  return {
    version: PAYLOAD_VERSION,
    scope: matched(fields, "scope", SCOPE, "is not a scope"),
    formedThrough: integer(fields, "formed_through", MAX_OFFSET),
    storedThrough: integer(fields, "stored_through", MAX_OFFSET),
    parkedTurns: Number(integer(fields, "parked_turns", MAX_TURNS)),
    occurredAt: second(fields, "occurred_at"),
  };
}

/** A number as it was written, before anything rounds it. */
class NumberText {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

type Fields = Readonly<Record<Field, unknown>>;
type Reviver = (key: string, value: unknown, context: { source?: string }) => unknown;

const keepNumberText: Reviver = (_key, value, context) =>
  typeof value === "number" ? new NumberText(context.source ?? "") : value;

function parseFields(body: string | Uint8Array): Fields {
  let parsed: unknown;
  try {
    const text =
      typeof body === "string"
        ? body
        : new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    parsed = JSON.parse(text, keepNumberText as (key: string, value: unknown) => unknown);
  } catch (cause) {
    throw new PayloadError("the body is not JSON in UTF-8", { cause });
  }
  if (
    typeof parsed !== "object" ||
    parsed === null ||
    Array.isArray(parsed) ||
    parsed instanceof NumberText
  ) {
    throw new PayloadError("the body is not a JSON object");
  }
  for (const field of FIELDS) if (!Object.hasOwn(parsed, field)) throw wrong(field, "is missing");
  if (Object.keys(parsed).length !== FIELDS.length) {
    throw new PayloadError(`the body has a field that ${PAYLOAD_VERSION} does not`);
  }
  return parsed as Fields;
}

function matched(fields: Fields, field: Field, pattern: RegExp, otherwise: string): string {
  const value = fields[field];
  if (typeof value !== "string" || !pattern.test(value)) throw wrong(field, otherwise);
  return value;
}

function integer(fields: Fields, field: Field, max: bigint): bigint {
  const value = fields[field];
  if (value instanceof NumberText && INTEGER.test(value.text)) {
    const exact = BigInt(value.text);
    if (exact <= max) return exact;
  }
  throw wrong(field, `is not an integer from 0 to ${max}`);
}

function second(fields: Fields, field: Field): Date {
  const text = matched(fields, field, SECOND, "is not a UTC time in whole seconds");
  const date = new Date(text);
  // A date such as 30 February parses to another day, or not at all.
  if (Number.isNaN(date.getTime()) || date.toISOString() !== text.replace("Z", ".000Z")) {
    throw wrong(field, "is not a date");
  }
  return date;
}

function wrong(field: Field, what: string): PayloadError {
  return new PayloadError(`${field} ${what}`);
}
