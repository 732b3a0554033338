// That nothing was lost, nothing was sent twice, and what was sent was signed.
import { verify } from "../../src/signing/index.ts";
import { type Endpoint, SECRET } from "./peers/peer.ts";
import type { Receipts } from "./receiver.ts";

export interface Verdict {
  received: number;
  lost: number;
  twice: number;
  /** Never owed. */
  strange: number;
  unsigned: number;
}

const WIDTH = 2 ** 32;

/** An endpoint and an offset owed to it. */
export type Owed = readonly [endpoint: number, offset: number];

/** Offsets 0 to `each` - 1 of every endpoint. */
export function* everyOffset(
  endpoints: readonly Endpoint[],
  each: (endpoint: Endpoint) => number,
): Iterable<Owed> {
  for (const endpoint of endpoints) {
    const count = each(endpoint);
    for (let offset = 0; offset < count; offset++) yield [endpoint.number, offset];
  }
}

/** Compares what arrived with what was owed. */
export function compare(receipts: Receipts, owed: Iterable<Owed>): Verdict {
  const seen = new Map<number, number>();
  for (let i = 0; i < receipts.times.length; i++) {
    const key = (receipts.endpoints[i] ?? 0) * WIDTH + (receipts.offsets[i] ?? 0);
    seen.set(key, (seen.get(key) ?? 0) + 1);
  }
  const verdict = { received: receipts.times.length, lost: 0, twice: 0, strange: 0, unsigned: 0 };
  for (const [endpoint, offset] of owed) {
    const key = endpoint * WIDTH + offset;
    const times = seen.get(key) ?? 0;
    if (times === 0) verdict.lost++;
    verdict.twice += Math.max(0, times - 1);
    seen.delete(key);
  }
  for (const times of seen.values()) verdict.strange += times;
  verdict.unsigned = receipts.examples.filter((text) => !isSigned(text)).length;
  return verdict;
}

function isSigned(text: string): boolean {
  const end = text.indexOf("\r\n\r\n");
  const header = /\r\ntaisce-signature: ([^\r]+)/i.exec(text)?.[1];
  if (header === undefined) return false;
  return verify({ secret: SECRET, header, body: text.slice(end + 4) }).ok;
}

/** What is wrong with it, in words; empty where nothing is. */
export function problems({ lost, twice, strange, unsigned }: Verdict): string[] {
  return [
    ...(lost > 0 ? [`${lost} lost`] : []),
    ...(twice > 0 ? [`${twice} sent twice`] : []),
    ...(strange > 0 ? [`${strange} never owed`] : []),
    ...(unsigned > 0 ? [`${unsigned} of the first few not signed`] : []),
  ];
}
