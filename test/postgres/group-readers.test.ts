// Readers that wait: woken by what is said on the channel, by a look where nothing was said, and ended when
// their time is over, their client gone or the service stopping.
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { Database } from "../../src/database/database.ts";
import { GroupReaders, type Take, TooManyWaiting } from "../../src/ledger/group-readers.ts";
import { groupBench, keysOf } from "../support/groups.ts";
import { tcpProxy } from "../support/tcp-proxy.ts";

const JOBS = { project: "p1", group: "jobs" };

/** Readers that look on their own only where a test says how often. */
async function readersBench(lookEveryMs = 600_000) {
  const bench = await groupBench();
  const readers = new GroupReaders({ db: bench.db, groups: bench.groups, lookEveryMs });
  onTestFinished(() => readers.stop());
  const take = (more: Partial<Take> = {}) => readers.take(JOBS, { limit: 50, waitMs: 20_000, ...more });
  return { ...bench, readers, take };
}

/** Whether it has come to its end within a moment. */
const settled = (promise: Promise<unknown>, withinMs = 50) =>
  Promise.race([promise.then(() => true), sleep(withinMs, false)]);

describe("a reader that waits", () => {
  it("is answered at once where there is something, and without a wait in any case", async () => {
    const { take, hand } = await readersBench();
    expect((await take({ waitMs: 0 })).handoffs).toEqual([]);
    await hand("a");
    expect(keysOf((await take()).handoffs)).toEqual(["a"]);
  });

  it("is woken by its own group alone", async () => {
    const { take, hand, readers } = await readersBench();
    const waiting = take();
    await sleep(50);
    await hand("a");
    for (const text of ["p1 job", "p1 jobs2", "p2 jobs", "", "p1  jobs", '{"scope":"p1"}'])
      readers.hear(text);
    expect(await settled(waiting)).toBe(false);
    readers.hear("p1 jobs");
    expect(keysOf((await waiting).handoffs)).toEqual(["a"]);
  });

  it("goes on waiting where it was woken for nothing", async () => {
    const { take, hand, readers } = await readersBench();
    const waiting = take();
    for (let n = 0; n < 5; n++) {
      readers.hear("p1 jobs");
      await sleep(10);
    }
    expect(await settled(waiting)).toBe(false);
    await hand("a");
    readers.hear("p1 jobs");
    expect((await waiting).handoffs.length).toBe(1);
  });

  it("does not miss what is handed over while it looks", async () => {
    const { take, hand, readers } = await readersBench();
    for (let n = 0; n < 50; n++) {
      const { next } = await take({ waitMs: 0 });
      const waiting = take({ after: next });
      // Somewhere during its first look.
      await sleep(Math.random() * 3);
      await hand(`k${n}`);
      readers.hear("p1 jobs");
      expect(keysOf((await waiting).handoffs)).toEqual([`k${n}`]);
    }
  });

  it("finds by looking what nobody told, with one statement for all, and looks no more than is new", async () => {
    const bench = await readersBench(50);
    let looks = 0;
    let pages = 0;
    const { lastPositions, page } = bench.groups;
    bench.groups.lastPositions = (...values) => {
      looks++;
      return lastPositions.apply(bench.groups, values);
    };
    bench.groups.page = (...values) => {
      pages++;
      return page.apply(bench.groups, values);
    };
    const waiting = Array.from({ length: 20 }, () => bench.take());
    await sleep(300);
    expect(looks).toBeLessThan(10);
    expect(pages).toBe(20);
    await bench.hand("a");
    for (const { handoffs } of await Promise.all(waiting)) expect(keysOf(handoffs)).toEqual(["a"]);
    expect(pages).toBe(40);
    const before = looks;
    await sleep(150);
    expect(looks).toBe(before);
  });

  it("gets nothing and its own cursor when the time is over", async () => {
    const { take, hand } = await readersBench();
    await hand("a");
    const { next } = await take();
    const started = performance.now();
    expect(await take({ after: next, waitMs: 150 })).toEqual({ handoffs: [], next });
    expect(performance.now() - started).toBeGreaterThan(145);
  });

  it("is let go at once when it is gone, or the service stops, after which nobody waits", async () => {
    const { take, readers } = await readersBench();
    const controller = new AbortController();
    const leaving = take({ gone: controller.signal });
    const staying = take();
    await sleep(50);
    controller.abort();
    expect(await settled(leaving)).toBe(true);
    expect(await settled(staying)).toBe(false);
    expect(await settled(take({ gone: controller.signal }))).toBe(true);
    readers.stop();
    expect((await staying).handoffs).toEqual([]);
    expect(await settled(take())).toBe(true);
  });

  it("is one of a thousand of its project at most; who left counts no more", async () => {
    const { take, readers } = await readersBench();
    const controller = new AbortController();
    const many = Array.from({ length: 1_000 }, () => take({ gone: controller.signal }));
    await expect(take()).rejects.toThrow(TooManyWaiting);
    const other = readers.take({ project: "p2", group: "jobs" }, { limit: 1, waitMs: 10 });
    expect((await other).handoffs).toEqual([]);
    controller.abort();
    await Promise.all(many);
    expect((await take({ waitMs: 10 })).handoffs).toEqual([]);
  });

  it("waits through an outage of the database", async () => {
    const bench = await groupBench();
    const proxy = await tcpProxy(bench.url);
    const db = new Database({ url: proxy.url, max: 2, applicationName: "readers" });
    const readers = new GroupReaders({ db, groups: bench.groups, lookEveryMs: 50 });
    onTestFinished(async () => {
      readers.stop();
      await db.close();
      await proxy.close();
    });
    const waiting = readers.take(JOBS, { limit: 50, waitMs: 20_000 });
    await sleep(100);
    await proxy.refuse();
    await bench.hand("a");
    expect(await settled(waiting, 300)).toBe(false);
    await proxy.heal();
    expect(keysOf((await waiting).handoffs)).toEqual(["a"]);
  });
});
