// When it is judged where a request may go: at registration, before each attempt, and on the connection
// itself. Which texts, lists and addresses are refused, in tables: cases/texts.test.ts, cases/names.test.ts.

import { describe, expect, it } from "vitest";
import { createConnector } from "../../src/egress/connector.ts";
import { EgressRefusal, parseDestinations, type SystemLookup } from "../../src/egress/index.ts";
import { createResolver } from "../../src/egress/resolver.ts";
import { createTrust } from "../../src/egress/trust.ts";
import { answering, listenTcp, post, receive, sender, status, timed } from "./harness.ts";

const OK = status("204 No Content");
const DESTINATION = { kind: "failed", category: "destination not permitted", retryable: false };
const PUBLIC = "93.184.216.34";

/** One answer a look-up, the last one again and again. */
function answers(...each: string[][]): SystemLookup & { asked: string[] } {
  const asked: string[] = [];
  const lookup: SystemLookup = async (hostname) => {
    const addresses = each[Math.min(asked.length, each.length - 1)] ?? [];
    asked.push(hostname);
    return addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
  };
  return Object.assign(lookup, { asked });
}

describe("before an attempt", () => {
  it("a host taken off the list since registration is refused", async () => {
    const { href } = await (await sender({ lookup: answers([PUBLIC]) })).vet("https://a.test/");
    const lookup = answers([PUBLIC]);
    const later = await sender({ lookup, destinations: parseDestinations("other.test") });
    expect(await post(later, href)).toEqual(DESTINATION);
    expect(lookup.asked).toEqual([]);
  });

  it("a kept connection is not used once its name has turned to where nothing may go", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test"] });
    const lookup = answers(["127.0.0.1"], ["127.0.0.1"], ["0.0.0.0"]);
    const by = await sender({ lookup, answerLifetimeMs: 0 });
    const url = `https://a.test:${receiver.port}/`;
    expect(await post(by, url)).toEqual({ kind: "accepted", status: 204 });
    expect(await post(by, url)).toEqual(DESTINATION);
    expect(receiver.requests).toHaveLength(1);
  });
});

describe("at the connection", () => {
  it("a name is connected to as it was checked: one answer serves both", async () => {
    const receiver = await receive(answering(OK), { dns: ["a.test"] });
    const lookup = answers(["127.0.0.1"], ["0.0.0.0"]);
    expect(await post(await sender({ lookup }), `https://a.test:${receiver.port}/`)).toMatchObject({
      kind: "accepted",
    });
    expect(lookup.asked).toEqual(["a.test"]);
  });

  /** Connects by the connector alone, as if no check had come before. */
  async function connectWith(hostname: string, port: number, permitsAddress: (address: string) => boolean) {
    const connector = createConnector({
      resolver: createResolver({ lookup: answers(["127.0.0.1"]) }),
      permitsHost: (name) => name !== "off-list.test",
      permitsAddress,
      trust: createTrust(),
    });
    return new Promise<unknown>((resolve) =>
      connector({ hostname, port: String(port) }, (...[error]) => resolve(error)),
    );
  }

  it.each(["127.0.0.1", "a.test", "off-list.test"])(
    "nothing is dialled to %s without permission",
    async (hostname) => {
      const listener = await listenTcp();
      const error = await connectWith(hostname, listener.port, () => false);
      expect(error).toMatchObject({
        code: hostname === "off-list.test" ? "EGRESS_DESTINATION" : "EGRESS_ADDRESS",
      });
      expect(listener.connections).toBe(0);
    },
  );

  it.each(["127.0.0.1", "a.test"])(
    "the peer of %s is judged again before a byte of TLS goes out",
    async (hostname) => {
      const listener = await listenTcp();
      let asked = 0;
      const error = await connectWith(hostname, listener.port, () => asked++ === 0);
      expect(error).toMatchObject({ code: "EGRESS_ADDRESS" });
      await listener.connected(1);
      await listener.allClosed();
      expect(asked).toBe(2);
      expect(listener.bytes).toBe(0);
    },
  );
});

describe("at registration", () => {
  it("a permitted URL is answered with what to store", async () => {
    const by = await sender({ permitPrivate: false, lookup: answers([PUBLIC]) });
    expect(await by.vet("https://A.test.:443/in?x#y")).toEqual({
      href: "https://a.test/in?x",
      origin: "https://a.test",
      hostname: "a.test",
      path: "/in?x",
    });
  });

  it("a name that does not resolve just now passes, and one whose look-up hangs does at the limit", async () => {
    const missing = await sender({ lookup: async () => Promise.reject(new Error("ENOTFOUND")) });
    expect((await missing.vet("https://a.test/")).href).toBe("https://a.test/");
    const hung = await sender({ lookup: () => new Promise(() => {}), timeoutMs: 100 });
    const [destination, ms] = await timed(() => hung.vet("https://a.test/"));
    expect(destination.href).toBe("https://a.test/");
    expect(ms).toBeGreaterThan(95);
  });

  it("refuses a host off the list although the signal has fired already", async () => {
    const signal = AbortSignal.abort(new Error("enough"));
    await expect((await sender()).vet("https://evil.example/", signal)).rejects.toBeInstanceOf(EgressRefusal);
  });

  it("ends with the signal's reason when that fires first", async () => {
    const by = await sender({ lookup: () => new Promise(() => {}) });
    const controller = new AbortController();
    const reason = new Error("enough");
    const vetted = by.vet("https://a.test/", controller.signal);
    controller.abort(reason);
    await expect(vetted).rejects.toBe(reason);
    await expect(by.vet("https://a.test/", AbortSignal.abort(reason))).rejects.toBe(reason);
  });

  it("a refusal names no address and no name behind it", async () => {
    const by = await sender({ permitPrivate: false, lookup: answers(["10.11.12.13"]) });
    const error: unknown = await by.vet("https://a.test/").catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(EgressRefusal);
    expect(JSON.stringify([String(error), error])).not.toMatch(/10\.11|a\.test|inside|private/);
  });
});
