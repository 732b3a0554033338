// The ledger of one process, wired together: its routes, and the recovery of what other processes left in
// flight.
import { deliveryRoutes } from "../api/delivery-routes.ts";
import type { Route } from "../api/route.ts";
import type { Audit } from "../audit/audit.ts";
import type { Sender } from "../egress/index.ts";
import { Attestations } from "../ledger/attest.ts";
import { Claims } from "../ledger/claims.ts";
import { Deliver } from "../ledger/deliver.ts";
import type { Groups } from "../ledger/groups.ts";
import { Recovery } from "../ledger/recovery.ts";
import { LedgerRows } from "../ledger/rows.ts";
import type { Settings } from "../settings/settings.ts";
import type { Logger } from "../telemetry/log.ts";
import type { Connection } from "./connection.ts";

/**
 * What a claim leaves beyond one attempt's time limit. Short, since callers of the same key wait for it after a
 * crash; a process that was merely slow still gets its outcome in afterwards.
 */
const CLAIM_MARGIN_MS = 2_000;
/** A clean stop waits at most this long for sends under way, beside the engine's attempts. */
const DRAIN_MS = 5_000;

export interface LedgerPartsOptions {
  settings: Settings;
  connection: Pick<Connection, "db" | "namespace">;
  audit: Audit;
  sender: Sender;
  groups: Groups;
  log: Logger;
}

export interface LedgerParts {
  routes: Route[];
  start(): void;
  stop(): Promise<void>;
}

export function ledgerParts({
  settings,
  connection,
  audit,
  sender,
  groups,
  log,
}: LedgerPartsOptions): LedgerParts {
  const { db, namespace } = connection;
  const leaseMs = settings.timeoutMs + CLAIM_MARGIN_MS;
  const claims = new Claims(db, namespace);
  const deliver = new Deliver({
    claims,
    sender: settings.destinations.empty ? undefined : sender,
    groups: {
      permits: (name) => settings.groups.permits(name),
      handOff: (handoff) => groups.handOff(db, handoff),
    },
    timeoutMs: settings.timeoutMs,
    leaseMs,
    log,
  });
  const recovery = new Recovery({
    claims,
    deliver: settings.destinations.empty ? undefined : deliver,
    leaseMs,
    maxAttempts: settings.attempts,
    log,
  });
  return {
    routes: deliveryRoutes({
      deliver,
      claims,
      rows: new LedgerRows(db, namespace, audit),
      attestations: new Attestations(db, namespace, audit),
    }),
    start: () => recovery.start(),
    async stop() {
      await Promise.all([recovery.stop(DRAIN_MS), deliver.drain(DRAIN_MS)]);
    },
  };
}
