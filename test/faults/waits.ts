// How long news took: from the answer to COMMIT until the endpoint got this or a later watermark.
import type { World } from "./world.ts";

/** The longest such wait of all advances at all endpoints, in ms. */
export function longestWait({ writers, endpoints, receiver }: World): number {
  const byPath = Map.groupBy(receiver.arrivals, ({ path }) => path);
  const acknowledged = new Map(writers.map((writer) => [writer.scope, writer.acknowledged]));
  let longest = 0;
  for (const { scope, path } of endpoints) {
    const arrivals = byPath.get(path) ?? [];
    let next = 0;
    let newest = -1n;
    for (const { formedThrough, at } of acknowledged.get(scope) ?? []) {
      let arrival = arrivals[next - 1];
      while (newest < formedThrough && next < arrivals.length) {
        arrival = arrivals[next++];
        const told = BigInt(arrival?.formedThrough ?? -1);
        if (told > newest) newest = told;
      }
      if (newest >= formedThrough && arrival !== undefined) longest = Math.max(longest, arrival.at - at);
    }
  }
  return longest;
}
