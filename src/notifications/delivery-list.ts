// A project's deliveries as its clients see them: newest first, a page at a time.
import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";

export const DELIVERY_STATES = ["pending", "delivered", "parked", "superseded"] as const;
export type DeliveryState = (typeof DELIVERY_STATES)[number];

/** What a client is shown of a delivery. */
export interface DeliveryView {
  id: string;
  endpoint_id: string;
  url: string;
  formed_through: bigint;
  stored_through: bigint;
  formed_turns: number;
  parked_turns: number;
  state: DeliveryState;
  attempts: number;
  next_attempt_at: Date | null;
  delivered_at: Date | null;
  parked_at: Date | null;
  last_status: number | null;
  last_error: string | null;
  created_at: Date;
}

export interface DeliveryPage {
  deliveries: DeliveryView[];
  /** Where the next page starts; undefined on the last one. */
  next?: string;
}

export interface DeliveryFilter {
  limit: number;
  after?: string | undefined;
  endpointId?: string | undefined;
  state?: DeliveryState | undefined;
}

const PENDING = "d.delivered_at IS NULL AND d.parked_at IS NULL AND d.superseded_at IS NULL";

const CONDITION: Record<DeliveryState, string> = {
  pending: PENDING,
  delivered: "d.delivered_at IS NOT NULL",
  parked: "d.parked_at IS NOT NULL",
  superseded: "d.superseded_at IS NOT NULL",
};

/** A place in the list: the microsecond a row was written, and its id. Opaque to clients. */
const CURSOR_PATTERN = /^(\d{1,17})_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** The cursor in a client's `after`; undefined where it is none of ours. */
export function parseCursor(after: string): { micros: string; id: string } | undefined {
  const match = CURSOR_PATTERN.exec(Buffer.from(after, "base64url").toString("latin1"));
  return match === null ? undefined : { micros: match[1] as string, id: match[2] as string };
}

export class DeliveryList {
  readonly #db: Queryable;
  readonly #schema: string;

  constructor(db: Queryable, namespace: Namespace) {
    this.#db = db;
    this.#schema = namespace.sql;
  }

  /** Index notification_delivery_scope_idx. `after` must have passed parseCursor. */
  async page(project: string, filter: DeliveryFilter): Promise<DeliveryPage> {
    const cursor = filter.after === undefined ? undefined : parseCursor(filter.after);
    const rows = await this.#db.query<DeliveryView & { micros: bigint }>(
      `SELECT d.delivery_id AS id, d.endpoint_id, COALESCE(e.group_target, e.url) AS url,
              d.formed_through, d.stored_through, d.formed_turns, d.parked_turns,
              CASE WHEN d.delivered_at IS NOT NULL THEN 'delivered' WHEN d.parked_at IS NOT NULL THEN 'parked'
                   WHEN d.superseded_at IS NOT NULL THEN 'superseded' ELSE 'pending' END AS state,
              d.attempts, CASE WHEN ${PENDING} THEN GREATEST(d.next_attempt_at, d.lease_until) END AS next_attempt_at,
              d.delivered_at, d.parked_at, d.last_status, d.last_error, d.created_at,
              (extract(epoch FROM d.created_at) * 1000000)::bigint AS micros
       FROM ${this.#schema}.notification_delivery d
       JOIN ${this.#schema}.notification_endpoint e USING (endpoint_id)
       WHERE d.scope = $1
         AND ($2::bigint IS NULL OR (d.created_at, d.delivery_id)
               < ('epoch'::timestamptz + $2::bigint * interval '1 microsecond', $3::uuid))
         AND ($4::uuid IS NULL OR d.endpoint_id = $4)
         ${filter.state === undefined ? "" : `AND ${CONDITION[filter.state]}`}
       ORDER BY d.created_at DESC, d.delivery_id DESC
       LIMIT $5`,
      [project, cursor?.micros ?? null, cursor?.id ?? null, filter.endpointId ?? null, filter.limit + 1],
    );
    const shown = rows.slice(0, filter.limit);
    const last = shown.at(-1);
    return {
      deliveries: shown.map(({ micros: _, ...view }) => view),
      ...(rows.length > filter.limit && last !== undefined
        ? { next: Buffer.from(`${last.micros}_${last.id}`).toString("base64url") }
        : {}),
    };
  }
}
