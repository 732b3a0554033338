// Writers: each a session of its own that advances its projects one commit at a time.
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import { micros } from "./clock.ts";
import { session } from "./database.ts";
import type { Peer, Setup } from "./peers/peer.ts";
import type { Receipts } from "./receiver.ts";

export interface Write {
  scope: string;
  offset: number;
  /** micros() before the statement was sent, and once COMMIT was answered. */
  sentAt: number;
  committedAt: number;
}

/** The next offset of every project. */
export type Offsets = Map<string, number>;

export const offsetsFor = (setup: Setup): Offsets => new Map(setup.endpoints.map(({ scope }) => [scope, 0]));

/** One advance, in autocommit: the statement's answer is its commit's. */
export async function write(
  client: pg.Client,
  peer: Peer,
  setup: Setup,
  offsets: Offsets,
  scope: string,
): Promise<Write> {
  const offset = offsets.get(scope) ?? 0;
  offsets.set(scope, offset + 1);
  const query = peer.advance(setup, scope, offset);
  const sentAt = micros();
  await client.query(query);
  return { scope, offset, sentAt, committedAt: micros() };
}

/** `perSecond` advances a second, at times that keep no beat with anything. */
export async function writeSteadily(
  peer: Peer,
  setup: Setup,
  offsets: Offsets,
  options: { perSecond: number; seconds: number; scopes?: string[] },
): Promise<Write[]> {
  const client = await session(setup.database.url);
  const scopes = options.scopes ?? [...offsets.keys()];
  const writes: Write[] = [];
  const interval = 1e6 / options.perSecond;
  const endsAt = micros() + options.seconds * 1e6;
  for (let at = micros(); at < endsAt; at += interval * (0.5 + Math.random())) {
    const wait = (at - micros()) / 1_000;
    if (wait > 0) await sleep(wait);
    writes.push(await write(client, peer, setup, offsets, scopes[writes.length % scopes.length] as string));
  }
  await client.end();
  return writes;
}

/** `writers` sessions, each with projects of its own, as fast as each can commit. */
export async function writeFlatOut(
  peer: Peer,
  setup: Setup,
  offsets: Offsets,
  options: { writers: number; seconds: number },
): Promise<Write[]> {
  const scopes = [...offsets.keys()];
  const clients = await Promise.all(
    Array.from({ length: options.writers }, () => session(setup.database.url)),
  );
  const writes: Write[] = [];
  const endsAt = micros() + options.seconds * 1e6;
  await Promise.all(
    clients.map(async (client, index) => {
      const own = scopes.filter((_, place) => place % options.writers === index);
      for (let turn = 0; micros() < endsAt; turn++) {
        writes.push(await write(client, peer, setup, offsets, own[turn % own.length] as string));
      }
    }),
  );
  await Promise.all(clients.map((client) => client.end()));
  return writes;
}

export interface Latencies {
  /** Milliseconds from COMMIT's answer to the request's arrival, which may be below zero. */
  committed: number[];
  /** From just before the statement was sent. */
  sent: number[];
}

/** Of the writes that arrived; where one arrived twice, its first time counts. */
export function latencies(setup: Setup, writes: Write[], receipts: Receipts): Latencies {
  const numbers = new Map(setup.endpoints.map(({ scope, number }) => [scope, number]));
  const arrival = new Map<string, number>();
  for (let i = receipts.times.length - 1; i >= 0; i--) {
    arrival.set(`${receipts.endpoints[i]}/${receipts.offsets[i]}`, receipts.times[i] ?? Number.NaN);
  }
  const found: Latencies = { committed: [], sent: [] };
  for (const { scope, offset, sentAt, committedAt } of writes) {
    const at = arrival.get(`${numbers.get(scope)}/${offset}`);
    if (at === undefined) continue;
    found.committed.push((at - committedAt) / 1_000);
    found.sent.push((at - sentAt) / 1_000);
  }
  return found;
}
