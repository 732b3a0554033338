// The module can be lifted out whole: it knows undici and Node, and nothing of this product or its environment.

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const FOLDER = new URL("../../../src/egress/", import.meta.url);
const files = readdirSync(FOLDER).map((name) => ({
  name,
  text: readFileSync(new URL(name, FOLDER), "utf8"),
}));

describe("src/egress", () => {
  it.each(files)("$name imports only its neighbours, Node and undici", ({ text }) => {
    const imports = [...text.matchAll(/from "([^"]+)"/g)].map(([, from = ""]) => from);
    for (const from of imports) expect(from).toMatch(/^(?:\.\/[a-z-]+\.ts|node:[a-z/]+|undici)$/);
  });

  it.each(files)(
    "$name reads no environment, touches no global dispatcher and prints nothing",
    ({ text }) => {
      expect(text).not.toMatch(/process\.env|GlobalDispatcher|console\.|\bfetch\(|ProxyAgent/);
    },
  );

  it.each(files)("$name is under 300 lines and says what it is for", ({ text }) => {
    expect(text.split("\n").length).toBeLessThan(300);
    expect(text).toMatch(/^\/\*\*/);
  });
});
