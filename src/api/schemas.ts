// The kinds of value that bodies and answers are made of. `override` is how one is described in OpenAPI,
// where zod's own description would not be what a client needs.
import { z } from "zod";
import { LEDGER_STATUSES } from "../ledger/ledger.ts";

const MAX_INT4 = 2_147_483_647;
const MAX_INT8 = 9_223_372_036_854_775_807n;

const int64 = { type: "integer", format: "int64", minimum: 0 };

/** An offset in a body: a JSON integer from 0 to the largest bigint, as BigInt. */
export const offsetSchema = z
  .union([z.int().min(0), z.bigint().min(0n).max(MAX_INT8)], { error: "must be an integer from 0 to 2^63-1" })
  .transform((value) => BigInt(value))
  .meta({ override: int64 });

export const countSchema = z.int().min(0).max(MAX_INT4);

/** An offset in an answer. */
export const offsetAnswer = z.bigint().meta({ override: int64 });

export const timeAnswer = z.date().meta({ override: { type: "string", format: "date-time" } });

/** Stored as text, and answered as it is stored. */
const timeText = z.string().meta({ override: { type: "string", format: "date-time" } });

/** A row of the ledger in an answer. */
export const ledgerRowAnswer = z.object({
  id: z.string(),
  identity_id: z.string(),
  target: z.string(),
  scope: z.string(),
  idempotency: z.string(),
  run_id: z.string(),
  created_at: timeText,
  status: z.enum(LEDGER_STATUSES),
  sent_at: timeText.optional(),
  variables_hash: z.string(),
});

export const idAnswer = z.uuid().meta({ override: { type: "string", format: "uuid" } });
