// A raw LISTEN session that says what came in, and knows when nothing more can come.
import { randomUUID } from "node:crypto";
import pg from "pg";
import { session } from "./roles.ts";

export interface Ear {
  /** Every payload heard since the last call. */
  heard(): Promise<string[]>;
}

/**
 * Listens on a channel. PostgreSQL hands notifications over in the order of their commits, so a marker
 * sent after what a test did comes after whatever that caused.
 */
export async function listen(channel: string): Promise<Ear> {
  const client = await session();
  let payloads: string[] = [];
  let onMarker = (_payload: string) => {};
  client.on("notification", ({ payload = "" }) => {
    if (payload.startsWith("marker ")) onMarker(payload);
    else payloads.push(payload);
  });
  await client.query(`LISTEN ${pg.escapeIdentifier(channel)}`);
  return {
    async heard() {
      const marker = `marker ${randomUUID()}`;
      const arrived = new Promise<void>((resolve) => {
        onMarker = (payload) => {
          if (payload === marker) resolve();
        };
      });
      await client.query("SELECT pg_notify($1, $2)", [channel, marker]);
      await arrived;
      const all = payloads;
      payloads = [];
      return all;
    },
  };
}
