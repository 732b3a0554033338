// A namespace whose groups are handed to and read from, without a service around them.
import type { Queryable } from "../../src/database/database.ts";
import { FormationHandoffs } from "../../src/ledger/group-formation.ts";
import { PermittedGroups } from "../../src/ledger/group-name.ts";
import { Groups, type HandOff, type TakenHandoff } from "../../src/ledger/groups.ts";
import { type EngineBench, engineBench } from "./engine.ts";

export interface GroupBench extends EngineBench {
  groups: Groups;
  /** Hands `idempotency` to the group `jobs` of p1. */
  hand(idempotency: string, more?: Partial<HandOff>, on?: Queryable): ReturnType<Groups["handOff"]>;
  /** What is handed to `jobs` after a cursor. */
  page(after?: string, limit?: number): ReturnType<Groups["page"]>;
  /** The keys of everything handed to `jobs`, a page at a time, from a cursor on. */
  keys(limit?: number, after?: string): Promise<string[]>;
  /** Formation for the groups that are listed; all of them unless told otherwise. */
  formationOf(...listed: string[]): FormationHandoffs;
  /** The same by other connections. */
  formationOn(db: Queryable): FormationHandoffs;
}

export const handoff = (idempotency: string, more: Partial<HandOff> = {}): HandOff => ({
  project: "p1",
  group: "jobs",
  identityId: "someone",
  scope: "p1",
  idempotency,
  runId: "run",
  variables: {},
  variablesHash: "",
  ...more,
});

export const keysOf = (handoffs: TakenHandoff[]): string[] => handoffs.map(({ idempotency }) => idempotency);

export async function groupBench(): Promise<GroupBench> {
  const bench = await engineBench();
  const { db, namespace } = bench;
  const groups = new Groups(namespace);
  const page = (after?: string, limit = 200) =>
    groups.page(db, { project: "p1", group: "jobs" }, after, limit);
  const formation = (on: Queryable, listed: string[]) =>
    new FormationHandoffs({
      db: on,
      namespace,
      groups: new PermittedGroups(listed.length === 0 ? ["*"] : listed),
      notify: true,
      runId: "engine",
    });
  return {
    ...bench,
    groups,
    hand: (idempotency, more, on = db) => groups.handOff(on, handoff(idempotency, more)),
    page,
    async keys(limit, after) {
      const all: string[] = [];
      for (
        let found = await page(after, limit);
        found.handoffs.length > 0;
        found = await page(found.next, limit)
      ) {
        all.push(...keysOf(found.handoffs));
      }
      return all;
    },
    formationOf: (...listed) => formation(db, listed),
    formationOn: (other) => formation(other, []),
  };
}
