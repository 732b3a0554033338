// Which look-up may start when: a few names that hang leave the way free for the others.

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type LookupJob, LookupQueue } from "../../../src/egress/lookup-queue.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});

afterEach(() => {
  vi.useRealTimers();
});

/** A queue whose look-ups end when told to, and the names of those that have started. */
function watched() {
  const queue = new LookupQueue();
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  const jobs = new Map<string, LookupJob>();
  return {
    started,
    /** Adds `name.group` in that order. */
    add(...names: string[]) {
      for (const hostname of names) {
        const { promise, resolve } = Promise.withResolvers<void>();
        const run = () => {
          started.push(hostname);
          ends.set(hostname, resolve);
          return promise;
        };
        const job = { hostname, group: hostname.split(".")[1] ?? "", run };
        jobs.set(hostname, job);
        queue.add(job);
      }
    },
    async end(...names: string[]) {
      for (const name of names) ends.get(name)?.();
      await new Promise(setImmediate);
    },
    remove: (name: string) => queue.remove(jobs.get(name) as LookupJob),
  };
}

const names = (count: number, group: string) => Array.from({ length: count }, (_, i) => `n${i}.${group}`);

describe("look-ups of names never asked for before", () => {
  it("are two at once in a group, and four in all", () => {
    const { add, started } = watched();
    add(...names(40, "a"), "x.b", "y.c", "z.d");
    expect(started).toEqual(["n0.a", "n1.a", "x.b", "y.c"]);
  });

  it("start in the order they came, as others end", async () => {
    const { add, end, started } = watched();
    add(...names(4, "a"), ...names(3, "b"));
    await end("n0.a");
    await end("n1.a", "n0.b");
    expect(started).toEqual(["n0.a", "n1.a", "n0.b", "n1.b", "n2.a", "n3.a", "n2.b"]);
  });

  it("that were taken out do not start; one that runs stays", async () => {
    const { add, end, remove, started } = watched();
    add(...names(4, "a"));
    expect([remove("n0.a"), remove("n2.a"), remove("n2.a")]).toEqual([false, true, false]);
    await end("n0.a", "n1.a");
    expect(started).toEqual(["n0.a", "n1.a", "n3.a"]);
  });
});

describe("groups in which many wait", () => {
  it("take turns", async () => {
    const { add, end, started } = watched();
    add(...names(9, "a"), ...names(2, "b"), ...names(2, "c"), ...names(2, "d"));
    await end("n0.a", "n1.a", "n0.b", "n1.b");
    expect(started.slice(4)).toEqual(["n2.a", "n0.c", "n0.d", "n3.a"]);
  });

  it("cost no more a look-up, however many there are", async () => {
    const COUNT = 5_000;
    const queue = new LookupQueue();
    let reads = 0;
    let ended = 0;
    const run = async () => {
      ended += 1;
    };
    for (const name of names(COUNT, "a")) {
      const group = {
        get group() {
          reads += 1;
          return "a";
        },
      };
      queue.add(Object.assign(Object.create(group), { hostname: name, run }));
    }
    await vi.waitFor(() => expect(ended).toBe(COUNT));
    expect(reads / COUNT).toBeLessThan(10);
  });
});

describe("a name that was quick the last time", () => {
  it("gets past names that hang, in its group and elsewhere, but not without end", async () => {
    const { add, end, started } = watched();
    const known = names(7, "a");
    add(...known);
    for (const name of known) await end(name);
    started.length = 0;
    add("h1.a", "h2.a", "h3.b", "h4.b", "h5.c");
    expect(started).toEqual(["h1.a", "h2.a", "h3.b", "h4.b"]);
    add(...known);
    expect(started.slice(4)).toEqual(["n0.a", "n1.a"]);
    await end("n0.a");
    await end("n1.a");
    expect(started.slice(6)).toEqual(["n2.a", "n3.a"]);
  });
});

describe("a name that took long the last time", () => {
  it("has one place in its group and two in all, until it is quick again", async () => {
    const { add, end, started } = watched();
    const slow = ["s1.a", "s2.a", "s3.b", "s4.c"];
    for (const name of slow) {
      add(name);
      vi.advanceTimersByTime(1_001);
      await end(name);
    }
    started.length = 0;
    add(...slow);
    expect(started).toEqual(["s1.a", "s3.b"]);
    add("new1.a", "new2.b", "new3.b");
    expect(started.slice(2)).toEqual(["new1.a", "new2.b"]);
    await end("s1.a", "s3.b");
    expect(started.slice(4)).toEqual(["s2.a", "s4.c"]);
    await end("s2.a", "s4.c", "new1.a", "new2.b", "new3.b");
    started.length = 0;
    add("s1.a", "s2.a");
    expect(started).toEqual(["s1.a", "s2.a"]);
  });

  it("is not kept waiting by quick names of its group", async () => {
    const { add, end, started } = watched();
    add("slow.a");
    vi.advanceTimersByTime(1_001);
    await end("slow.a");
    for (const name of ["q1.a", "q2.a"]) {
      add(name);
      await end(name);
    }
    started.length = 0;
    add("q1.a", "q2.a", "slow.a");
    expect(started).toEqual(["q1.a", "q2.a", "slow.a"]);
  });
});
