// The body of a notification: exactly the six fields of contract section 8, in their order.
import { stringifyExact } from "../json/exact.ts";

export interface News {
  scope: string;
  formedThrough: bigint;
  storedThrough: bigint;
  parkedTurns: number;
  /** UTC, whole seconds: `2026-09-11T09:44:20Z`. */
  occurredAt: string;
}

/** The same bytes for every attempt at one delivery. */
export function notificationBody(news: News): string {
  return stringifyExact({
    version: "taisce-notification/v1",
    scope: news.scope,
    formed_through: news.formedThrough,
    stored_through: news.storedThrough,
    parked_turns: news.parkedTurns,
    occurred_at: news.occurredAt,
  });
}
