// A namespace with a project and endpoints, and the delivery store on it, without a service around them.
import { Audit } from "../../src/audit/audit.ts";
import { Formation } from "../../src/formation/formation.ts";
import { Deliveries, type Outcome, type Owed, type Room } from "../../src/notifications/deliveries.ts";
import { type Deliver, Endpoints } from "../../src/notifications/endpoints.ts";
import { Projects } from "../../src/projects/projects.ts";
import type { Signal } from "../../src/signals/signal.ts";
import { type TestNamespace, testNamespace } from "./namespaces.ts";

export interface StateRow {
  formed_through: bigint;
  state: string;
  attempts: number;
  last_error: string | null;
  last_status: number | null;
}

export interface EngineBench extends TestNamespace {
  deliveries: Deliveries;
  formation: Formation;
  /** Advances the watermark to the newest of the signals and owes them. */
  owe(signals: Signal[], room: Room): Promise<Owed>;
  /** Records outcomes; how many held their row. */
  record(outcomes: Outcome[]): Promise<number>;
  /** Registers an endpoint of p1, a path of localhost or `group:<name>`; its id. */
  endpoint(path: string, deliver?: Deliver): Promise<string>;
  disable(id: string): Promise<boolean>;
  /** Every delivery, by endpoint and offset. */
  states(): Promise<StateRow[]>;
}

const PRINCIPAL = {
  id: "00000000-0000-4000-8000-000000000000",
  project: "p1",
  access: "read-write",
  live: true,
} as const;

/** Leases are 400 ms and attempts three, unless said otherwise. */
export async function engineBench(
  options: { leaseMs?: number; maxAttempts?: number; ledgerRun?: string | undefined } = {},
): Promise<EngineBench> {
  const test = await testNamespace();
  const { db, namespace } = test;
  await new Projects(db, namespace).create("p1");
  const endpoints = new Endpoints(db, namespace, new Audit(namespace));
  const formation = new Formation(db, namespace);
  const deliveries = new Deliveries(db, namespace, { leaseMs: 400, maxAttempts: 3, ...options });
  return {
    ...test,
    deliveries,
    formation,
    async owe(signals, free) {
      for (const { formedThrough } of signals) await formation.advance("p1", { formedThrough });
      const owed = await deliveries.owe(signals, free);
      if (!owed.more) return owed;
      const rest = await deliveries.oweLatest(signals, { ...free, total: free.total - owed.claims.length });
      return {
        claims: [...owed.claims, ...rest.claims],
        left: owed.left + rest.left,
        leftTo: [...owed.leftTo, ...rest.leftTo],
        written: owed.written + rest.written,
        superseded: rest.superseded,
        more: false,
      };
    },
    record: async (outcomes) => (await deliveries.record(outcomes)).recorded.size,
    async endpoint(path, deliver = "every") {
      const url = path.startsWith("group:") ? path : `https://localhost${path}`;
      const result = await endpoints.register(PRINCIPAL, url, deliver);
      if (result.kind !== "registered") throw new Error(result.kind);
      return result.endpoint.id;
    },
    disable: (id) => endpoints.disable(PRINCIPAL, id),
    states: () =>
      db.query<StateRow & Record<string, unknown>>(
        `SELECT formed_through, attempts, last_error, last_status,
                CASE WHEN delivered_at IS NOT NULL THEN 'delivered' WHEN parked_at IS NOT NULL THEN 'parked'
                     WHEN superseded_at IS NOT NULL THEN 'superseded' WHEN lease_until IS NOT NULL THEN 'claimed'
                     ELSE 'pending' END AS state
         FROM ${namespace.sql}.notification_delivery ORDER BY endpoint_id, formed_through`,
      ),
  };
}

export const signal = (formedThrough: bigint, more: Partial<Signal> = {}): Signal => ({
  scope: "p1",
  formedThrough,
  storedThrough: formedThrough,
  formedTurns: 1,
  parkedTurns: 0,
  ...more,
});

export const room = (total = 100, perEndpoint = 100, busy: Room["busy"] = []): Room => ({
  total,
  perEndpoint,
  busy,
});
