// Request bodies: at most 1 MiB, one JSON object, no unknown fields, integers exact. An empty body is {}.
import type { Context } from "hono";
import { bodyLimit } from "hono/body-limit";
import { z } from "zod";
import { parseExact } from "../json/exact.ts";
import { ApiError } from "./errors.ts";

const MAX_BODY_BYTES = 1_048_576;
const MAX_INT4 = 2_147_483_647;
const MAX_INT8 = 9_223_372_036_854_775_807n;

/** An offset in a body: a JSON integer from 0 to the largest bigint, as BigInt. */
export const offsetSchema = z
  .union([z.int().min(0), z.bigint().min(0n).max(MAX_INT8)], { error: "must be an integer from 0 to 2^63-1" })
  .transform((value) => BigInt(value))
  .meta({ override: { type: "integer", format: "int64", minimum: 0 } });

export const countSchema = z.int().min(0).max(MAX_INT4);

export const limitBody = bodyLimit({
  maxSize: MAX_BODY_BYTES,
  onError: () => {
    throw new ApiError("invalid_body", `The body is larger than ${MAX_BODY_BYTES} bytes.`);
  },
});

/** @throws ApiError invalid_body, saying what is wrong and where. */
export async function readBody<Schema extends z.ZodType>(
  context: Context,
  schema: Schema,
): Promise<z.output<Schema>> {
  let document: unknown;
  try {
    const bytes = await context.req.arrayBuffer();
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    document = text.trim() === "" ? {} : parseExact(text);
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw new ApiError("invalid_body", "The body must be one JSON object in UTF-8.");
  }
  const result = schema.safeParse(document);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const where = issue === undefined || issue.path.length === 0 ? "" : `${issue.path.join(".")}: `;
  throw new ApiError(
    "invalid_body",
    `The body cannot be used: ${where}${issue?.message ?? "it is not valid"}.`,
  );
}
