// The routes under /v1/deliveries: deliver once, see what became of it, and say what is known of it.
import { z } from "zod";
import { ATTESTATIONS, type Attestations } from "../ledger/attest.ts";
import type { Claims } from "../ledger/claims.ts";
import { type Deliver, type DeliverAnswer, DeliverUnavailable } from "../ledger/deliver.ts";
import { canonicalJson, VariablesError } from "../ledger/hash.ts";
import { LEDGER_STATUSES, LedgerError, type LedgerRow } from "../ledger/ledger.ts";
import { type LedgerRows, noSuchDelivery, parseLedgerCursor } from "../ledger/rows.ts";
import { ApiError, notificationsUnavailable } from "./errors.ts";
import { type Answer, type Route, route } from "./route.ts";
import { ledgerRowAnswer } from "./schemas.ts";

/** Bytes of a key, or of whatever else the caller names: what an index takes, with room to spare. */
const MAX_TEXT_BYTES = 500;

const textSchema = z
  .string()
  .refine((text) => text !== "" && Buffer.byteLength(text) <= MAX_TEXT_BYTES, {
    error: `must be 1 to ${MAX_TEXT_BYTES} bytes long`,
  })
  .refine((text) => !text.includes("\0") && text.isWellFormed(), {
    error: "must be text that can be stored: no NUL, no half of a surrogate pair",
  });

/** Kept as they came: a copy member by member would lose names such as __proto__. */
const variablesSchema = z
  .custom<Record<string, unknown>>(
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
    { error: "must be an object" },
  )
  .superRefine((variables, context) => {
    try {
      canonicalJson(variables);
    } catch (error) {
      if (!(error instanceof VariablesError)) throw error;
      context.addIssue({ code: "custom", message: error.message });
    }
  })
  .meta({ override: { type: "object" } });

const idBody = z.strictObject({ id: z.string() });
const attestBody = z.strictObject({
  id: z.string(),
  status: z.enum(ATTESTATIONS),
  at: z.iso
    .datetime({ offset: true })
    .transform((text) => new Date(text))
    // In UTC too: an offset can lead out of the years of four digits.
    .refine((at) => !Number.isNaN(at.getTime()) && /^\d{4}-/.test(at.toISOString()), {
      error: "must be an RFC 3339 time",
    })
    .meta({ override: { type: "string", format: "date-time" } })
    .optional(),
});

export interface DeliveryRoutesOptions {
  deliver: Pick<Deliver, "deliver">;
  claims: Pick<Claims, "recover">;
  rows: LedgerRows;
  attestations: Attestations;
}

export function deliveryRoutes({ deliver, claims, rows, attestations }: DeliveryRoutesOptions): Route[] {
  return [
    route({
      method: "POST",
      path: "/v1/deliveries/deliver",
      operation: "delivery.deliver",
      summary: "Sends to an endpoint, or hands over to a group, once for each key",
      access: "read-write",
      body: z.strictObject({
        target: textSchema,
        scope: z.string().optional(),
        idempotency: textSchema,
        identity_id: textSchema,
        run_id: textSchema,
        variables: variablesSchema.optional(),
        redeliver: z.enum(["never", "on_change"]).optional(),
      }),
      answer: z.object({
        outcome: z.enum(["accepted", "already_delivered", "held", "failed"]),
        delivery: ledgerRowAnswer.nullable(),
        category: z.string().optional(),
      }),
      handle: ({ principal, body }) =>
        asked(async () => {
          const answer = await deliver.deliver(principal.project, {
            ...body,
            identityId: body.identity_id,
            runId: body.run_id,
          });
          return delivered(answer);
        }),
    }),
    route({
      method: "POST",
      path: "/v1/deliveries/list",
      operation: "delivery.list",
      summary: "Lists the project's sends and handoffs, newest first",
      access: "read-only",
      body: z.strictObject({
        target: textSchema.optional(),
        scope: textSchema.optional(),
        status: z.enum(LEDGER_STATUSES).optional(),
        run_id: textSchema.optional(),
        identity_id: textSchema.optional(),
        limit: z.int().min(1).max(200).optional(),
        after: z
          .string()
          .refine(
            (after) => parseLedgerCursor(after) !== undefined,
            "must be the `next` of an earlier answer",
          )
          .optional(),
      }),
      answer: z.object({ deliveries: z.array(ledgerRowAnswer), next: z.string().optional() }),
      async handle({ principal, body }) {
        const { run_id: runId, identity_id: identityId, limit = 50, ...filter } = body;
        // What died in flight shows as what it is.
        await claims.recover();
        const page = await rows.list({ ...filter, runId, identityId, limit, project: principal.project });
        return {
          body: { ...page, deliveries: page.deliveries.map(viewOf) },
          magnitude: page.deliveries.length,
        };
      },
    }),
    route({
      method: "POST",
      path: "/v1/deliveries/attest",
      operation: "delivery.attest",
      summary: "Says that a delivery was really sent, or was found, or was found missing or different",
      access: "read-write",
      body: attestBody,
      answer: z.object({ delivery: ledgerRowAnswer }),
      handle: ({ principal, body }) =>
        asked(async () => {
          storable(body.id);
          return attested(await attestations.attest(attesterOf(principal), body));
        }),
      signed: {
        signer: ({ bytes, signature }) => attestations.signer(bytes, signature),
        handle: ({ signer, body }) =>
          asked(async () => attested(await attestations.attest(signer, body as z.output<typeof attestBody>))),
      },
    }),
    route({
      method: "POST",
      path: "/v1/deliveries/settle",
      operation: "delivery.settle",
      summary: "Ends a hold: the delivery was found at its target",
      access: "read-write",
      body: idBody,
      answer: z.object({ delivery: ledgerRowAnswer }),
      handle: ({ principal, body }) =>
        asked(async () => {
          await claims.recover();
          return attested(await rows.settle(attesterOf(principal), storable(body.id)));
        }),
    }),
    route({
      method: "POST",
      path: "/v1/deliveries/release",
      operation: "delivery.release",
      summary: "Ends a hold: the next delivery under its key is sent",
      access: "read-write",
      body: idBody,
      answer: z.object({ released: z.literal(true), delivery: ledgerRowAnswer }),
      handle: ({ principal, body }) =>
        asked(async () => {
          await claims.recover();
          const { body: released, ...answer } = attested(
            await rows.release(attesterOf(principal), storable(body.id)),
          );
          return { ...answer, body: { released: true, ...released } };
        }),
    }),
  ];
}

const attesterOf = ({ project, id }: { project: string; id: string }) => ({ project, principal: id });

/** NUL is in no id, and PostgreSQL would refuse it with an error. @throws LedgerError */
function storable(id: string): string {
  if (id.includes("\0")) throw noSuchDelivery();
  return id;
}

function delivered(answer: DeliverAnswer): Answer {
  const { delivery, ...rest } = answer;
  return {
    body: { ...rest, delivery: delivery === null ? null : viewOf(delivery) },
    magnitude: answer.outcome === "accepted" ? 1 : 0,
    ...(delivery?.target.startsWith("https/") === true ? { endpointId: delivery.scope } : {}),
  };
}

function attested(row: LedgerRow): { body: { delivery: object }; magnitude: number; audited: true } {
  return { body: { delivery: viewOf(row) }, magnitude: 1, audited: true };
}

function viewOf({ sent_at, ...row }: LedgerRow & { project?: string }): object {
  const { project: _, ...view } = row;
  return sent_at === null ? view : { ...view, sent_at };
}

/** The ledger's refusals as the API's. */
async function asked(work: () => Promise<Answer>): Promise<Answer> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DeliverUnavailable) throw notificationsUnavailable();
    if (!(error instanceof LedgerError)) throw error;
    switch (error.kind) {
      case "not found":
        throw new ApiError("not_found", error.message);
      case "destination":
        throw new ApiError("invalid_destination", error.message);
      case "busy":
        throw new ApiError("rate_limited", error.message, { headers: { "Retry-After": "1" } });
      case "invalid":
        throw new ApiError("invalid_body", `The body cannot be used: ${error.message}.`);
    }
  }
}
