// What a row of the ledger is: its columns, its status words, its times and its sortable id. The stores
// beside this file write and read such rows.
import { randomBytes } from "node:crypto";

/** What is known of a send or handoff; docs/ledger.md says which may follow which. */
export const LEDGER_STATUSES = [
  "accepted",
  "sent",
  "confirmed",
  "contradicted",
  "unconfirmed",
  "settled",
] as const;
export type LedgerStatus = (typeof LEDGER_STATUSES)[number];

/** One row as clients see it. Times are RFC 3339 UTC text, as they are stored. */
export interface LedgerRow {
  id: string;
  identity_id: string;
  target: string;
  scope: string;
  idempotency: string;
  run_id: string;
  created_at: string;
  status: LedgerStatus;
  sent_at: string | null;
  variables_hash: string;
}

/** The columns of a LedgerRow, for a SELECT or RETURNING. */
export const LEDGER_COLUMNS =
  "id, identity_id, target, scope, idempotency, run_id, created_at, status, sent_at, variables_hash";

/** Notifications: their rows are written as their outcomes are recorded. */
export const NOTIFICATION_TARGET = "https/notification";
/** What `deliver` sends to a registered endpoint. */
export const DELIVER_TARGET = "https/deliver";

/** What the run_id of a service's own run begins with; every notification's does. */
export const OWN_RUN = "taisce-notify/";

/** A new row's id: a UUID of version 7, whose text sorts by the millisecond it was made in. */
export function newLedgerId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = 0x70 | ((bytes[6] ?? 0) & 0x0f);
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** A timestamptz as the ledger's text: `2026-09-11T09:44:20.125Z`. */
export function ledgerTime(expression: string): string {
  return `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

/** What was asked of the ledger cannot be done; the message is for people and says what to do. */
export class LedgerError extends Error {
  override readonly name = "LedgerError";
  readonly kind: "not found" | "invalid" | "destination" | "busy";

  constructor(kind: LedgerError["kind"], message: string) {
    super(message);
    this.kind = kind;
  }
}
