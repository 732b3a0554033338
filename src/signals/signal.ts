// What a NOTIFY payload says, and its reader. A signal is a hint: one that cannot be read is dropped,
// and the reconciler finds what it spoke of.
import { z } from "zod";
import { parseExact } from "../json/exact.ts";
import type { Advance } from "../notifications/deliveries.ts";
import { SCOPE_PATTERN } from "../projects/projects.ts";

/** A signal speaks of one advance. */
export type Signal = Advance;

const MAX_INT4 = 2_147_483_647;
const MAX_INT8 = 9_223_372_036_854_775_807n;

const offset = z
  .union([z.int().min(0), z.bigint().min(0n).max(MAX_INT8)])
  .transform((value) => BigInt(value));
const count = z.int().min(0).max(MAX_INT4);

const payloadSchema = z.object({
  scope: z.string().regex(SCOPE_PATTERN),
  formed_through: offset,
  stored_through: offset,
  formed_turns: count,
  parked_turns: count,
});

/** The signal in a payload; undefined where it is none. Never throws: anyone may NOTIFY anything. */
export function parseSignal(payload: string): Signal | undefined {
  let document: unknown;
  try {
    document = parseExact(payload);
  } catch {
    return undefined;
  }
  const { data } = payloadSchema.safeParse(document);
  if (data === undefined) return undefined;
  return {
    scope: data.scope,
    formedThrough: data.formed_through,
    storedThrough: data.stored_through,
    formedTurns: data.formed_turns,
    parkedTurns: data.parked_turns,
  };
}
