// What is remembered of clients' choices stays bounded, and is the newest.

import { expect, it } from "vitest";
import { BoundedMap } from "../../../src/egress/bounded-map.ts";

it("keeps the entries set last, as many as its limit", () => {
  const map = new BoundedMap<string, number>(3);
  for (const [index, key] of ["a", "b", "c", "a", "d", "e"].entries()) map.set(key, index);
  expect(["a", "b", "c", "d", "e"].map((key) => map.get(key))).toEqual([3, undefined, undefined, 4, 5]);
  map.delete("a");
  map.set("f", 6);
  expect(["a", "d", "e", "f"].map((key) => map.get(key))).toEqual([undefined, 4, 5, 6]);
});
