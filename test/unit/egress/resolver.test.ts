// Names to addresses: shared look-ups, short-lived answers, a bounded memory. Time is the clock's own,
// moved by hand where an answer has to grow old.

import { afterEach, describe, expect, it, vi } from "vitest";
import { createResolver, type SystemLookup } from "../../../src/egress/resolver.ts";

const ONE = [{ address: "192.0.2.1", family: 4 as const }];

afterEach(() => {
  vi.useRealTimers();
});

/** A look-up that counts how often each name was asked for. */
function counted(answer: SystemLookup = async () => ONE): { lookup: SystemLookup; asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    lookup: (hostname) => {
      asked.push(hostname);
      return answer(hostname);
    },
  };
}

/** What is under way has had its turn. */
const settled = () => new Promise(setImmediate);

describe("the resolver", () => {
  it("asks once for all who ask at once, and once a name", async () => {
    const { lookup, asked } = counted();
    const resolver = createResolver({ lookup });
    const answers = await Promise.all([..."aaaab"].map((name) => resolver.resolve(name)));
    expect(asked).toEqual(["a", "b"]);
    expect(answers).toEqual(Array(5).fill(ONE));
  });

  it("uses an answer for a second and no longer, whatever becomes of the question asked meanwhile", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    let answers = 0;
    const { lookup, asked } = counted(async () => {
      if (++answers > 1) throw new Error("no such name any more");
      return ONE;
    });
    const resolver = createResolver({ lookup });
    await resolver.resolve("a");
    vi.advanceTimersByTime(999);
    expect(resolver.cached("a")).toEqual(ONE);
    await settled();
    expect(asked).toHaveLength(2);
    vi.advanceTimersByTime(1);
    expect(resolver.cached("a")).toBeUndefined();
    await expect(resolver.resolve("a")).rejects.toMatchObject({ code: "EGRESS_UNRESOLVED" });
    expect(asked).toHaveLength(3);
  });

  it("asks again, once, while a name in use is answered still, so that nobody waits", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const { lookup, asked } = counted();
    const resolver = createResolver({ lookup });
    await resolver.resolve("a");
    vi.advanceTimersByTime(499);
    expect(resolver.cached("a")).toEqual(ONE);
    expect(asked).toHaveLength(1);
    for (let halfSeconds = 0; halfSeconds < 10; halfSeconds++) {
      vi.advanceTimersByTime(500);
      expect(resolver.cached("a")).toEqual(ONE);
      expect(resolver.cached("a")).toEqual(ONE);
      await settled();
    }
    expect(asked).toHaveLength(11);
  });

  it("counts an answer's age from its arrival, and cannot be told to keep it longer", async () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const { promise, resolve } = Promise.withResolvers<typeof ONE>();
    const resolver = createResolver({ lookup: () => promise, answerLifetimeMs: 60_000 });
    const asked = resolver.resolve("a");
    vi.advanceTimersByTime(5_000);
    resolve(ONE);
    await asked;
    expect(resolver.cached("a")).toEqual(ONE);
    vi.advanceTimersByTime(1_000);
    expect(resolver.cached("a")).toBeUndefined();
  });

  it("asks every time where answers are not to be used again", async () => {
    const { lookup, asked } = counted();
    const resolver = createResolver({ lookup, answerLifetimeMs: 0 });
    await resolver.resolve("a");
    await resolver.resolve("a");
    expect(asked).toHaveLength(2);
  });

  it.each<[why: string, SystemLookup]>([
    [
      "fails",
      async () => Promise.reject(Object.assign(new Error("getaddrinfo ENOTFOUND a"), { code: "ENOTFOUND" })),
    ],
    [
      "throws at once",
      () => {
        throw new Error("no");
      },
    ],
    ["has no addresses", async () => []],
    ["has addresses without end", async () => Array(65).fill(ONE[0])],
    [
      "has a family of another kind",
      async () => [...ONE, { address: "192.0.2.2", family: "IPv4" as unknown as number }],
    ],
    ["has something that is no address", async () => [...ONE, { address: "localhost", family: 4 }]],
    ["has an address of the other family", async () => [...ONE, { address: "::1", family: 4 }]],
  ])("rejects alike when the look-up %s, and asks anew the next time", async (_why, answer) => {
    const { lookup, asked } = counted(answer);
    const resolver = createResolver({ lookup });
    for (const times of [1, 2]) {
      const error: unknown = await resolver.resolve("a").catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code: "EGRESS_UNRESOLVED" });
      expect(error).not.toHaveProperty("cause");
      expect(asked).toHaveLength(times);
    }
    expect(resolver.cached("a")).toBeUndefined();
  });

  it("remembers a bounded number of names, the newest", async () => {
    const resolver = createResolver({ lookup: async () => ONE });
    for (let i = 0; i < 1_500; i++) await resolver.resolve(`n${i}`);
    const remembered = Array.from({ length: 1_500 }, (_, i) => resolver.cached(`n${i}`) !== undefined);
    expect(remembered.filter(Boolean)).toHaveLength(1_000);
    expect(remembered.slice(-1_000).every(Boolean)).toBe(true);
  });

  it("starts no look-up that nobody waits for any more, and does not forget who still waits", async () => {
    const hung = Promise.withResolvers<typeof ONE>();
    const { lookup, asked } = counted((name) =>
      name.endsWith("hung") ? hung.promise : Promise.resolve(ONE),
    );
    const resolver = createResolver({ lookup, groupOf: () => "one for all" });
    const running = [resolver.resolve("1.hung"), resolver.resolve("2.hung")];
    const controller = new AbortController();
    const abandoned = resolver.resolve("abandoned", controller.signal);
    const leaver = resolver.resolve("waits", controller.signal);
    const stayer = resolver.resolve("waits");
    controller.abort();
    await expect(abandoned).rejects.toMatchObject({ code: "EGRESS_UNRESOLVED" });
    await expect(leaver).rejects.toMatchObject({ code: "EGRESS_UNRESOLVED" });
    await expect(resolver.resolve("late", controller.signal)).rejects.toMatchObject({
      code: "EGRESS_UNRESOLVED",
    });
    expect(asked).toEqual(["1.hung", "2.hung"]);
    hung.resolve(ONE);
    expect(await Promise.all([...running, stayer])).toEqual([ONE, ONE, ONE]);
    expect(asked).toEqual(["1.hung", "2.hung", "waits"]);
    expect(await resolver.resolve("abandoned")).toEqual(ONE);
  });

  it("uses the answer that came after its asker had left", async () => {
    const late = Promise.withResolvers<typeof ONE>();
    const { lookup, asked } = counted(() => late.promise);
    const resolver = createResolver({ lookup });
    const controller = new AbortController();
    const left = resolver.resolve("a", controller.signal);
    controller.abort();
    await expect(left).rejects.toMatchObject({ code: "EGRESS_UNRESOLVED" });
    late.resolve(ONE);
    expect(await resolver.resolve("a")).toEqual(ONE);
    expect(asked).toEqual(["a"]);
  });

  it("knows the system's names when nothing else is given", async () => {
    const addresses = await createResolver().resolve("localhost");
    expect(addresses.every(({ address }) => address === "127.0.0.1" || address === "::1")).toBe(true);
  });
});
