// Whatever throws or runs out on the way, a post ends in an outcome, and nothing is left behind.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, it, vi } from "vitest";
import { EgressRefusal } from "../../src/egress/index.ts";
import { answering, listenTcp, pool, post, receive, sender, status } from "./harness.ts";

const NETWORK_ERROR = { kind: "failed", category: "network error", retryable: true };
const OUT_OF_DESCRIPTORS = new URL("./out-of-descriptors.ts", import.meta.url).pathname;

const thrown = () => {
  throw new Error("no");
};

describe("without a file descriptor left", () => {
  it("a post fails for now, and the process lives", async () => {
    const { PATH } = process.env;
    const script = 'ulimit -n 256 && exec "$0" "$1"';
    const args = ["-c", script, process.execPath, OUT_OF_DESCRIPTORS];
    const { stdout } = await promisify(execFile)("sh", args, { env: { PATH } });
    expect(JSON.parse(stdout)).toEqual({ code: "EMFILE", outcomes: [NETWORK_ERROR, NETWORK_ERROR] });
  });
});

describe("a check that fails in itself", () => {
  it.each([
    ["throws", thrown],
    ["rejects", () => Promise.reject(new Error("no"))],
    ["rejects with nothing", () => Promise.reject()],
  ])("and %s ends its attempt as a network error, with nothing connected", async (_how, check) => {
    const listener = await listenTcp();
    const { attempt, connections } = await pool();
    expect(await attempt(`https://127.0.0.1:${listener.port}`, "/", check)).toEqual(NETWORK_ERROR);
    expect(connections.counts).toEqual({ origins: 0, open: 0, idle: 0 });
    expect(listener.connections).toBe(0);
  });

  it("and rejects with a refusal ends it as that refusal", async () => {
    const { attempt } = await pool();
    const refusal = new EgressRefusal("destination not permitted", "no");
    expect(await attempt("https://127.0.0.1:1", "/", () => Promise.reject(refusal))).toEqual({
      kind: "failed",
      category: "destination not permitted",
      retryable: false,
    });
  });

  it.each(["127.0.0.1", "localhost"])(
    "at the connection to %s permits nothing, and nothing is dialled",
    async (host) => {
      const listener = await listenTcp();
      const { attempt, connections } = await pool({ permitsAddress: thrown });
      expect(await attempt(`https://${host}:${listener.port}`)).toEqual({
        kind: "failed",
        category: "address not permitted",
        retryable: false,
      });
      expect(listener.connections).toBe(0);
      await vi.waitFor(() => expect(connections.counts).toEqual({ origins: 0, open: 0, idle: 0 }));
    },
  );

  it("in the allow-list ends a post as a network error; vetting lets nothing pass by it", async () => {
    const by = await sender({ destinations: { empty: false, permits: thrown, entryFor: thrown } });
    expect(await post(by, "https://a.test/")).toEqual(NETWORK_ERROR);
    await expect(by.vet("https://a.test/")).rejects.toThrow("no");
    await by.close();
  });
});

describe("names that hang", () => {
  it("hold up neither a post to another name nor, at its own limit, their registration", async () => {
    const receiver = await receive(answering(status("204 No Content")));
    const asked: string[] = [];
    const hung = Promise.withResolvers<never>();
    const lookup = (name: string) => {
      asked.push(name);
      return name === "localhost" ? Promise.resolve([{ address: "127.0.0.1", family: 4 }]) : hung.promise;
    };
    const by = await sender({ lookup, answerLifetimeMs: 0, timeoutMs: 300 });
    const vetted = Array.from({ length: 40 }, (_, i) => by.vet(`https://h${i}.test/`));
    const posted = Array.from({ length: 40 }, (_, i) => post(by, `https://h${i}.test/`));
    for (let i = 0; i < 5; i++) {
      expect(await post(by, `https://localhost:${receiver.port}/`)).toMatchObject({ kind: "accepted" });
    }
    expect((await Promise.all(vetted)).map(({ hostname }) => hostname)).toContain("h39.test");
    expect(new Set((await Promise.all(posted)).map((outcome) => JSON.stringify(outcome)))).toEqual(
      new Set([JSON.stringify({ kind: "failed", category: "timeout", retryable: true })]),
    );
    hung.reject(new Error("SERVFAIL"));
    await new Promise(setImmediate);
    // Whoever waited has left the queue: no look-up is made for nobody.
    expect(new Set(asked)).toEqual(new Set(["h0.test", "h1.test", "localhost"]));
  });
});
