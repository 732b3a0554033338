// The four routes under /v1/notifications: where a project is told, and what became of it.
import { z } from "zod";
import { EgressRefusal, type Sender } from "../egress/index.ts";
import { groupNameIn, namesGroup, type PermittedGroups } from "../ledger/group-name.ts";
import { DELIVERY_STATES, type DeliveryList, parseCursor } from "../notifications/delivery-list.ts";
import {
  type Endpoint,
  type Endpoints,
  isEndpointId,
  MAX_LISTED_DISABLED,
  MAX_LIVE_ENDPOINTS,
} from "../notifications/endpoints.ts";
import { ApiError } from "./errors.ts";
import { type Route, route } from "./route.ts";
import { countSchema, idAnswer, offsetAnswer, timeAnswer } from "./schemas.ts";

const endpointAnswer = z.object({
  id: idAnswer,
  url: z.url(),
  created_at: timeAnswer,
  disabled_at: timeAnswer.optional(),
});
const deliveryAnswer = z.object({
  id: idAnswer,
  endpoint_id: idAnswer,
  url: z.url(),
  formed_through: offsetAnswer,
  stored_through: offsetAnswer,
  formed_turns: countSchema,
  parked_turns: countSchema,
  state: z.enum(DELIVERY_STATES),
  attempts: countSchema,
  next_attempt_at: timeAnswer.optional(),
  delivered_at: timeAnswer.optional(),
  parked_at: timeAnswer.optional(),
  last_status: countSchema.optional(),
  last_error: z.string().optional(),
  created_at: timeAnswer,
});

export interface NotificationRoutesOptions {
  endpoints: Endpoints;
  deliveryList: DeliveryList;
  sender: Pick<Sender, "vet">;
  /** The groups that the operator lists. */
  groups: PermittedGroups;
  /** Told at once, so that this process sends nothing more of what it has claimed for it. */
  onDisabled?: (endpointId: string) => void;
}

export function notificationRoutes(options: NotificationRoutesOptions): Route[] {
  const { endpoints, deliveryList, sender, groups, onDisabled } = options;
  return [
    route({
      method: "POST",
      path: "/v1/notifications/endpoints/register",
      operation: "notification.register",
      summary: "Registers an HTTPS endpoint, or group:<name>; the signing secret is shown this once",
      access: "read-write",
      body: z.strictObject({
        url: z.string(),
        deliver: z.enum(["every", "latest"]).optional(),
        idempotency: z.enum(["none", "native"]).optional(),
      }),
      answer: z.object({ id: idAnswer, url: z.url(), created_at: timeAnswer, secret: z.string().length(64) }),
      async handle({ principal, body }) {
        const url = await vetted(sender, groups, body.url);
        const result = await endpoints.register(principal, url, body.deliver ?? "every", body.idempotency);
        if (result.kind === "already registered") {
          throw new ApiError(
            "invalid_destination",
            "This URL is registered already. To replace its secret, disable the endpoint and register it again.",
            { status: 409 },
          );
        }
        if (result.kind === "too many") {
          throw new ApiError(
            "invalid_destination",
            `A project has at most ${MAX_LIVE_ENDPOINTS} live endpoints; disable one first.`,
            { status: 409 },
          );
        }
        const { id, created_at } = result.endpoint;
        return {
          body: { id, url, created_at, secret: result.secret },
          magnitude: 1,
          endpointId: id,
          audited: true,
        };
      },
    }),
    route({
      method: "POST",
      path: "/v1/notifications/endpoints/list",
      operation: "notification.list",
      summary: `Lists the project's endpoints, oldest first: the live ones and the ${MAX_LISTED_DISABLED} disabled last`,
      access: "read-only",
      body: z.strictObject({}),
      answer: z.object({ endpoints: z.array(endpointAnswer) }),
      async handle({ principal }) {
        const listed = await endpoints.list(principal.project);
        return { body: { endpoints: listed.map(viewOf) }, magnitude: listed.length };
      },
    }),
    route({
      method: "POST",
      path: "/v1/notifications/endpoints/disable",
      operation: "notification.disable",
      summary: "Disables an endpoint; its pending deliveries end as superseded",
      access: "read-write",
      body: z.strictObject({ id: z.string() }),
      answer: z.object({ disabled: z.literal(true) }),
      async handle({ principal, body }) {
        if (!(await endpoints.disable(principal, body.id))) throw noSuchEndpoint();
        onDisabled?.(body.id);
        return { body: { disabled: true }, magnitude: 1, audited: true };
      },
    }),
    route({
      method: "POST",
      path: "/v1/notifications/deliveries/list",
      operation: "notification.deliveries",
      summary: "Lists the project's deliveries, newest first",
      access: "read-only",
      body: z.strictObject({
        limit: z.int().min(1).max(200).optional(),
        after: z
          .string()
          .refine((after) => parseCursor(after) !== undefined, "must be the `next` of an earlier answer")
          .optional(),
        endpoint_id: z.string().optional(),
        state: z.enum(DELIVERY_STATES).optional(),
      }),
      answer: z.object({ deliveries: z.array(deliveryAnswer), next: z.string().optional() }),
      async handle({ principal, body }) {
        const { endpoint_id: endpointId, limit = 50, after, state } = body;
        if (endpointId !== undefined && !isEndpointId(endpointId)) throw noSuchEndpoint();
        const page = await deliveryList.page(principal.project, { limit, after, endpointId, state });
        // A row is proof enough that the endpoint is the project's; only an empty page needs to ask.
        if (endpointId !== undefined && page.deliveries.length === 0) {
          if (!(await endpoints.owns(principal.project, endpointId))) throw noSuchEndpoint();
        }
        return {
          body: { ...page, deliveries: page.deliveries.map(withoutNulls) },
          magnitude: page.deliveries.length,
          ...(endpointId === undefined ? {} : { endpointId }),
        };
      },
    }),
  ];
}

/**
 * The URL as it is stored.
 *
 * Failure policy: fail closed, with one message whatever the reason, so that a refusal says nothing of
 * which names or addresses lie inside.
 *
 * @throws ApiError invalid_destination
 */
async function vetted(sender: Pick<Sender, "vet">, groups: PermittedGroups, url: string): Promise<string> {
  if (namesGroup(url)) {
    const group = groupNameIn(url);
    if (group === undefined || !groups.permits(group)) throw notPermitted();
    return url;
  }
  try {
    return (await sender.vet(url)).href;
  } catch (error) {
    if (error instanceof EgressRefusal) throw notPermitted();
    throw error;
  }
}

function notPermitted(): ApiError {
  return new ApiError(
    "invalid_destination",
    "This destination is not permitted. It must be an https URL without credentials, on a host that the operator lists in TAISCE_NOTIFY_DESTINATIONS, at an address outside of the deployment; or group:<name>, for a group that is listed there.",
  );
}

function noSuchEndpoint(): ApiError {
  return new ApiError("not_found", "This project has no such endpoint; list its endpoints for their ids.");
}

function viewOf({ id, url, created_at, disabled_at }: Endpoint) {
  return { id, url, created_at, ...(disabled_at === null ? {} : { disabled_at }) };
}

function withoutNulls<Value extends object>(value: Value): Partial<Value> {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null)) as Partial<Value>;
}
