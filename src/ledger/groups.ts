// Groups: what is handed to each, once, in an order that readers can rely on, and read from a cursor on.
// Why the order can be relied on is under "Handoffs" in docs/ledger.md.
import type { Queryable } from "../database/database.ts";
import type { Namespace } from "../database/namespace.ts";
import { parseExact, stringifyExact } from "../json/exact.ts";
import { groupTarget } from "./group-name.ts";
import { type GroupStatements, groupStatements } from "./group-queries.ts";
import { type LedgerRow, newLedgerId } from "./ledger.ts";
import { undisputed } from "./undisputed.ts";

/** One thing to hand over. */
export interface HandOff {
  project: string;
  /** The group's name, without `group:`. */
  group: string;
  identityId: string;
  /** The project's scope. */
  scope: string;
  idempotency: string;
  runId: string;
  /** For who takes it; empty where there are none. */
  variables: Record<string, unknown>;
  variablesHash: string;
}

export interface HandedOff {
  /** `already_delivered`: the key was handed over before, and `delivery` is what was. */
  outcome: "accepted" | "already_delivered";
  delivery: LedgerRow;
}

/** A row of the ledger as a reader takes it. */
export type TakenHandoff = Omit<LedgerRow, "sent_at"> & { sent_at?: string; variables?: unknown };

export interface HandoffPage {
  /** Oldest first. */
  handoffs: TakenHandoff[];
  /** The cursor behind them. */
  next: string;
}

/** A group of one project. */
export interface GroupKey {
  project: string;
  group: string;
}

export interface GroupView extends GroupKey {
  /** Whether formation is handed to it: by an endpoint of the project that names it. */
  endpoint: "live" | "disabled" | "none";
  /** The newest watermark that was handed to it. */
  formed_through: bigint | null;
  last_handoff_at: string | null;
}

/** Bytes of variables in one answer, unless its first handoff alone has more. */
const MOST_VARIABLES = 4_194_304;

/** A place in a group: its name, a position, and the id of the handoff there. Opaque to clients. */
const CURSOR_PATTERN = /^([a-z][a-z0-9_-]{0,62}) (\d{1,18}) ([0-9A-Za-z-]{0,64})$/;

const cursorText = (group: string, position: bigint | number, id: string) =>
  Buffer.from(`${group} ${position} ${id}`).toString("base64url");

/** The cursor in a client's `after`; undefined where it is none of this group's. */
export function parseGroupCursor(group: string, after: string): { position: bigint; id: string } | undefined {
  const match = CURSOR_PATTERN.exec(Buffer.from(after, "base64url").toString("latin1"));
  if (match === null || match[1] !== group) return undefined;
  return { position: BigInt(match[2] as string), id: match[3] as string };
}

/** The channel on which readers are woken; the longest namespace leaves it room. */
export const handoffChannel = ({ name }: Namespace): string => `${name}_handoff`;

/** What is said on that channel where something was handed to a group. */
export const wakeText = ({ project, group }: GroupKey): string => `${project} ${group}`;

export class Groups {
  readonly #sql: GroupStatements;

  /** `notify`: whether readers are woken, or left to look by themselves. */
  constructor(namespace: Namespace, notify = true) {
    this.#sql = groupStatements(namespace, notify ? handoffChannel(namespace) : undefined);
  }

  /**
   * Hands something over, once for each key, and wakes who waits for it at the commit. In a transaction
   * with other work it comes last: until that commits, nobody else hands anything to this group.
   */
  async handOff(db: Queryable, handoff: HandOff): Promise<HandedOff> {
    const { project, group, scope, idempotency, variables } = handoff;
    const key = [groupTarget(group), scope, idempotency];
    const values = [
      ...key,
      project,
      newLedgerId(),
      handoff.identityId,
      handoff.runId,
      handoff.variablesHash,
      Object.keys(variables).length === 0 ? null : stringifyExact(variables),
    ];
    const [row] = await undisputed(() =>
      db.query<LedgerRow & { is_new: boolean; woken: unknown }>(this.#sql.handOff, values),
    );
    if (row !== undefined) {
      const { is_new, woken: _, ...delivery } = row;
      return { outcome: is_new ? "accepted" : "already_delivered", delivery };
    }
    // Somebody committed the same key after the statement had begun: it neither saw nor wrote a row.
    const [winner] = await db.query<LedgerRow>(this.#sql.byKey, key);
    if (winner === undefined) throw new Error(`a handoff to ${key[0]} was neither written nor found`);
    return { outcome: "already_delivered", delivery: winner };
  }

  /** What was handed to a group after a cursor, oldest first. `after` must have passed parseGroupCursor. */
  async page(db: Queryable, key: GroupKey, after: string | undefined, limit: number): Promise<HandoffPage> {
    const { project, group } = key;
    const cursor = after === undefined ? undefined : parseGroupCursor(group, after);
    const rows = await db.query<LedgerRow & { position: bigint; variables: string | null }>(this.#sql.page, [
      project,
      groupTarget(group),
      cursor?.position ?? 0,
      cursor?.id ?? "",
      limit,
      MOST_VARIABLES,
    ]);
    const last = rows.at(-1);
    return {
      handoffs: rows.map(takenFrom),
      next:
        last === undefined ? (after ?? cursorText(group, 0, "")) : cursorText(group, last.position, last.id),
    };
  }

  /** Of these groups, those that were ever handed anything, with the position of their newest. */
  async lastPositions(db: Queryable, keys: GroupKey[]): Promise<(GroupKey & { position: bigint })[]> {
    return db.query(this.#sql.lastPositions, [
      keys.map(({ project }) => project),
      keys.map(({ group }) => groupTarget(group)),
    ]);
  }

  /** The groups of one project, or of all, that were handed something or are endpoints. */
  async list(db: Queryable, project?: string): Promise<GroupView[]> {
    return db.query<GroupView & Record<string, unknown>>(this.#sql.list, [project ?? null]);
  }
}

function takenFrom({
  position: _,
  sent_at,
  variables,
  ...row
}: LedgerRow & { position: bigint; variables: string | null }): TakenHandoff {
  return {
    ...row,
    ...(sent_at === null ? {} : { sent_at }),
    ...(variables === null ? {} : { variables: parseExact(variables) }),
  };
}
