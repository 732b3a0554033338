// What each endpoint may have: in all, ahead of its turn, while it fails, and while it is slow.
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Claim, Looked } from "../../../src/notifications/deliveries.ts";
import { type Claimant, Lanes } from "../../../src/notifications/lanes.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
});

afterEach(() => {
  vi.useRealTimers();
});

/** Each endpoint is of an origin of its own, but `x@host` of `host`. */
const claimOf = (endpointId: string) => {
  const host = endpointId.split("@").at(-1);
  return {
    endpointId,
    url: `https://${host}.example/in`,
    claimedAt: performance.now(),
    news: { scope: `p-${endpointId}` },
  } as Claim;
};

/** Lanes of 8 attempts, 4 an endpoint. */
function eight() {
  const lanes = new Lanes(8, 4);
  /** Adds what a statement claimed with as much room as it took; how many were taken in. */
  const add = (endpointId: string, count: number) => {
    const granted = lanes.room();
    let taken = 0;
    for (let n = 0; n < count; n++) if (lanes.add(claimOf(endpointId), granted)) taken++;
    return taken;
  };
  /** Sends all that may be sent; to which endpoints. */
  const send = () => {
    const sent: string[] = [];
    for (;;) {
      const { claim } = lanes.next();
      if (claim === undefined) return sent;
      sent.push(claim.endpointId);
    }
  };
  const attempt = (endpointId: string, how: "accepted" | "failed", ms: number) => {
    add(endpointId, 1);
    send();
    return lanes.ended(endpointId, how, ms);
  };
  /** After as many quick attempts claims may wait. */
  const warm = (endpointId: string) => {
    for (let n = 0; n < 100; n++) attempt(endpointId, "accepted", 2);
  };
  /** They answered, at a pace at which no claims wait. */
  const prove = (...endpointIds: string[]) => {
    for (const endpointId of endpointIds) attempt(endpointId, "accepted", 90);
  };
  const roomOf = (endpointId: string) =>
    lanes.room().busy.find((each) => each.endpointId === endpointId)?.room;
  const roomsOf = (...endpointIds: string[]) => {
    const { busy } = lanes.room();
    return endpointIds.map((id) => busy.find(({ endpointId }) => endpointId === id)?.room);
  };
  return { lanes, add, send, attempt, warm, prove, roomOf, roomsOf };
}

describe("attempts", () => {
  it("are so many in all and to one endpoint, and endpoints take turns", () => {
    const { lanes, add, send, prove } = eight();
    prove("a", "b", "c");
    expect([add("a", 5), add("b", 3), add("c", 3)]).toEqual([4, 3, 3]);
    expect(send()).toEqual(["a", "b", "c", "a", "b", "c", "a", "b"]);
    lanes.ended("b", "accepted", 90);
    expect(send()).toEqual(["c"]);
    expect(lanes.inFlight).toBe(8);
  });

  it("are one to an endpoint that fails, until one lands; what waited for it is given back", () => {
    const { lanes, add, send, attempt, warm, roomOf } = eight();
    warm("a");
    expect(add("a", 12)).toBe(12);
    expect(send()).toHaveLength(4);
    expect(lanes.ended("a", "failed", 2)).toHaveLength(8);
    expect(add("a", 1)).toBe(0);
    for (let n = 0; n < 3; n++) lanes.ended("a", "failed", 2);
    expect(roomOf("a")).toBe(1);
    attempt("a", "accepted", 90);
    expect(roomOf("a")).toBe(36);
  });

  it("are one to an endpoint that has not answered yet, and three quarters of all for those together", () => {
    const { lanes, add, send, roomOf } = eight();
    expect(lanes.room().perEndpoint).toBe(1);
    const eightOfThem = [..."abcdefgh"];
    expect(eightOfThem.map((endpointId) => add(endpointId, 2))).toEqual(Array(8).fill(1));
    expect(send()).toEqual([..."abcdef"]);
    expect(lanes.takesUnproven).toBe(false);
    expect(lanes.room().perEndpoint).toBe(0);
    lanes.ended("a", "accepted", 90);
    expect(send()).toEqual(["g"]);
    expect(roomOf("a")).toBe(4);
    add("a", 4);
    // To the one that has answered the rest is open.
    expect(send()).toEqual(["a", "a"]);
    lanes.ended("b", "failed", 5_000);
    expect(send()).toEqual(["h"]);
    lanes.ended("c", "accepted", 90);
    expect(lanes.takesUnproven).toBe(true);
  });

  it("are no more than that for those and the ones that lag behind together", () => {
    const { add, send, attempt, roomsOf } = eight();
    for (const endpointId of ["x", "y"]) attempt(endpointId, "failed", 5_000);
    for (const endpointId of "abcde") add(endpointId, 1);
    expect(send()).toEqual([..."abcde"]);
    expect(roomsOf("x", "y")).toEqual([1, 0]);
  });

  it("are a quarter of all for those that lag behind, who take turns whether or not they have anything due", () => {
    const { lanes, add, send, attempt, roomsOf } = eight();
    for (const endpointId of "abcd") attempt(endpointId, "failed", 5_000);
    const turns = [roomsOf(..."abcd"), roomsOf(..."abcd")];
    expect(turns.map((rooms) => rooms.filter((room) => room === 1).length)).toEqual([2, 2]);
    for (const each of [0, 1, 2, 3]) expect(turns.map((rooms) => rooms[each]).sort()).toEqual([0, 1]);
    expect(lanes.room().othersLag).toBe(true);
    for (const endpointId of ["a", "b"]) add(endpointId, 1);
    expect(send()).toEqual(["a", "b"]);
    expect(roomsOf(..."abcd")).toEqual([0, 0, 0, 0]);
    lanes.ended("a", "failed", 5_000);
    expect(roomsOf(..."abcd").filter((room) => room === 1)).toHaveLength(1);
    // Others find the rest free.
    expect(lanes.room().total).toBe(7);
  });

  it("to one that is slow but answers are as many as to any, within that quarter", () => {
    const { attempt, roomsOf } = eight();
    attempt("a", "accepted", 1_500);
    attempt("b", "accepted", 1_500);
    expect(roomsOf("a", "b")).toEqual([2, 0]);
    attempt("a", "accepted", 90);
    expect(roomsOf("a", "b")).toEqual([4, 2]);
  });

  it("are there for those known to answer, however many claims wait for those not known", () => {
    const { lanes, add, send, prove } = eight();
    prove("a");
    for (const endpointId of "bcdefghijklm") add(endpointId, 1);
    expect(send()).toEqual([..."bcdefg"]);
    expect(lanes.takesUnproven).toBe(false);
    expect(lanes.hungry).toBe(true);
    expect(lanes.room().total).toBe(2);
    add("a", 2);
    expect(send()).toEqual(["a", "a"]);
    // One of them ends: another of the six that wait goes, and no more are asked for.
    lanes.ended("b", "accepted", 90);
    expect(send()).toEqual(["h"]);
    expect(lanes.takesUnproven).toBe(false);
  });

  it("are forgotten to have failed after ten minutes", () => {
    const { attempt, roomOf } = eight();
    attempt("a", "failed", 20);
    vi.advanceTimersByTime(599_000);
    expect(roomOf("a")).toBe(1);
    vi.advanceTimersByTime(2_000);
    expect(roomOf("a")).toBeUndefined();
  });

  it("are a quarter of all to the new endpoints of an origin that keeps them waiting, or is new itself", () => {
    const { lanes, add, send } = eight();
    const took = (ids: string[]) => ids.filter((id) => add(id, 1) === 1);
    const ofDead = Array.from({ length: 6 }, (_, n) => `${n}@dead`);
    expect(took(ofDead)).toEqual(["0@dead", "1@dead"]);
    expect(lanes.room()).toMatchObject({ perEndpoint: 1, fullOrigins: ["//dead.example"], othersLag: true });
    expect(took(["a", "b", "c", "d"])).toEqual(["a", "b", "c", "d"]);
    expect(send()).toEqual(["0@dead", "1@dead", "a", "b", "c", "d"]);
    for (const id of ["a", "b", "c", "d"]) lanes.ended(id, "accepted", 5);

    // Each that ends in vain gives its place to the next one.
    expect(took(ofDead)).toEqual([]);
    lanes.ended("0@dead", "failed", 5_000);
    expect(lanes.room()).toMatchObject({ fullOrigins: [], othersLag: false });
    expect(took(["2@dead", "3@dead"])).toEqual(["2@dead"]);
    expect(send()).toEqual(["2@dead"]);

    // As soon as one of them ends well, or soon, there is no such limit.
    lanes.ended("1@dead", "accepted", 3_000);
    expect(took(["3@dead", "4@dead", "5@dead"])).toEqual(["3@dead", "4@dead", "5@dead"]);
    lanes.ended("2@dead", "failed", 5_000);
    expect(took(["6@dead"])).toEqual([]);
    send();
    lanes.ended("3@dead", "failed", 5);
    expect(took(["6@dead"])).toEqual(["6@dead"]);
  });

  it("find room for signals while a look has set all of it aside, a quarter of them and no more", () => {
    const { lanes } = eight();
    const look = lanes.reserve(lanes.room("sweep"));
    expect(lanes.room("sweep").total).toBe(0);
    const signals = lanes.room(new Set());
    expect(signals.total).toBe(2);
    const owing = lanes.reserve(signals);
    expect(lanes.room(new Set()).total).toBe(0);
    owing();
    look();
    // Nor does a look find room that signals have set aside.
    lanes.reserve(lanes.room(new Set()));
    expect(lanes.room(new Set()).total).toBe(0);
    expect(lanes.room("sweep").total).toBe(0);
  });

  it("of an origin are given back with the claims that waited too long or were taken out", () => {
    const { lanes, add, send, prove } = eight();
    prove("a", "b");
    for (const id of ["a", "b"]) add(id, 4);
    expect(send()).toHaveLength(8);
    for (const id of ["0@dead", "1@dead"]) expect(add(id, 1)).toBe(1);
    expect(add("2@dead", 1)).toBe(0);
    expect(lanes.takeWaiting("0@dead")).toHaveLength(1);
    expect(add("2@dead", 1)).toBe(1);
    vi.advanceTimersByTime(1_001);
    lanes.ended("a", "accepted", 5);
    expect(lanes.next().stale).toHaveLength(2);
    for (const id of ["3@dead", "4@dead"]) expect(add(id, 1)).toBe(1);
    expect(add("5@dead", 1)).toBe(0);
  });

  it("are remembered to have ended well, however many fail", () => {
    const { lanes, attempt, roomOf } = eight();
    for (let n = 0; n < 1_100; n++) attempt(`${n}@bad`, "failed", 5);
    attempt("good", "accepted", 5);
    lanes.room();
    attempt("good", "accepted", 5);
    // Its four and those that wait ahead of them; a forgotten one would not be named.
    expect(roomOf("good")).toBe(36);
  });

  it("find room for one that answered within the last minute, one at first, whatever those not known take", () => {
    const { lanes, add, send, prove, roomOf } = eight();
    prove("a");
    expect(roomOf("a")).toBe(4);
    vi.advanceTimersByTime(30_000);
    // As much as any other has: not worth saying.
    expect(roomOf("a")).toBeUndefined();
    for (const endpointId of "bcdefgh") add(endpointId, 1);
    expect(send()).toEqual([..."bcdefg"]);
    expect(lanes.room().perEndpoint).toBe(0);
    expect(roomOf("a")).toBe(1);
    expect(add("a", 3)).toBe(1);
    expect(send()).toEqual(["a"]);
    expect(roomOf("a")).toBe(0);
    lanes.ended("a", "accepted", 90);
    expect(roomOf("a")).toBe(4);
    vi.advanceTimersByTime(61_000);
    expect(roomOf("a")).toBeUndefined();
  });
});

describe("a statement is told of", () => {
  /** Of eight attempts, the six that those not known may have are under way: only who is named has room. */
  function closed(...proven: string[]) {
    const made = eight();
    made.prove(...proven);
    const named = (claimant?: Claimant) => made.lanes.room(claimant).busy.map(({ endpointId }) => endpointId);
    /** A look that found nothing due. */
    const look = (looked: Looked = ALL) => {
      const room = made.lanes.room();
      made.lanes.looked(room, looked, performance.now());
      return room;
    };
    const close = () => {
      for (const endpointId of "uvwxyz") made.add(endpointId, 1);
      expect(made.send()).toEqual([..."uvwxyz"]);
      expect(made.lanes.room(new Set()).perEndpoint).toBe(0);
    };
    return { ...made, named, look, close };
  }
  const ALL: Looked = { after: "", before: undefined, took: [] };

  it("those its signals are for, and no others", () => {
    const { named, close } = closed("a", "b");
    close();
    expect(named(new Set(["p-b", "p-nobody"]))).toEqual(["b"]);
    expect(named(new Set())).toEqual([]);
  });

  it("those that may have more due; the others that are known once in a second", () => {
    const { lanes, add, send, look, named, close } = closed("a", "b");
    close();
    expect(named()).toEqual(["a", "b", ..."uvwxyz"]);
    look();
    // All are named until a look has gone through them to the end.
    look({ after: "", before: "b", took: [] });
    expect(named()).toEqual([..."uvwxyz", "a", "b"]);
    expect(look({ after: "a", before: undefined, took: [] })).toMatchObject({
      namesAll: true,
      othersLag: false,
    });
    expect(named()).toEqual([..."uvwxyz"]);
    expect(look().othersLag).toBe(true);
    expect(named(new Set(["p-a"]))).toEqual(["a"]);
    vi.advanceTimersByTime(1_001);
    expect(look()).toMatchObject({ othersLag: false });
    vi.advanceTimersByTime(900);
    expect(named()).toEqual([..."uvwxyz"]);

    // One that is sent to again may have more.
    const granted = lanes.room(new Set(["p-a"]));
    expect(lanes.add(claimOf("a"), granted)).toBe(true);
    expect(send()).toEqual(["a"]);
    lanes.ended("a", "accepted", 90);
    expect(named()).toEqual([..."uvwxyz", "a"]);
    expect(add("b", 1)).toBe(1);
  });

  it("those with rows that were written and not claimed, also where a look ends that did not see them", () => {
    const { lanes, look, named, close } = closed("a", "b");
    close();
    look();
    look();
    lanes.left(["b", "nobody"]);
    expect(named()).toEqual([..."uvwxyz", "b"]);

    const room = lanes.room();
    const began = performance.now();
    vi.advanceTimersByTime(10);
    lanes.left(["b"]);
    lanes.looked(room, ALL, began);
    expect(named()).toEqual([..."uvwxyz", "b"]);
  });

  it("those that the last look did not reach, or took all of that it might", () => {
    const { look, named, close } = closed("a", "b", "c", "d");
    close();
    look({ after: "a", before: "c", took: [] });
    look({ after: "zz", before: undefined, took: [] });
    expect(named()).toEqual(["a", "c", "d", ..."uvwxyz"]);
    look({ ...ALL, took: ["c", "c", "c", "c"] });
    expect(named()).toEqual(["c", ..."uvwxyz"]);
  });

  it("those of its projects that lag behind in turns", () => {
    const { lanes, attempt } = eight();
    for (const host of "abcd") {
      lanes.add({ ...claimOf(host), news: { scope: "one" } } as Claim, lanes.room());
      lanes.next();
      lanes.ended(host, "failed", 5_000);
    }
    attempt("e", "accepted", 5);
    const turn = () => {
      const { busy } = lanes.room(new Set(["one"]));
      return busy.filter(({ room }) => room > 0).map(({ endpointId }) => endpointId);
    };
    expect([...turn(), ...turn()].sort()).toEqual([..."abcd"]);
  });

  it("those that rest, too, where their origin is full", () => {
    const { lanes, add, send, prove, named } = closed();
    prove("good@host");
    vi.advanceTimersByTime(2_000);
    expect(named()).toEqual([]);
    add("0@host", 1);
    add("1@host", 1);
    expect(send()).toHaveLength(2);
    lanes.ended("0@host", "failed", 5_000);
    add("2@host", 1);
    expect(lanes.room()).toMatchObject({ perEndpoint: 1, fullOrigins: ["//host.example"] });
    expect(lanes.room().busy).toContainEqual({ endpointId: "good@host", room: 1 });
  });
});

describe("claims ahead of their turn", () => {
  it("are asked for once attempts are quick, and not while they are slow", () => {
    const { lanes, attempt, warm, roomOf } = eight();
    expect(lanes.room().total).toBe(8);
    warm("a");
    expect(lanes.room().total).toBe(72);
    expect(roomOf("a")).toBe(36);
    for (let n = 0; n < 3; n++) attempt("b", "failed", 5_000);
    expect(lanes.room().total).toBe(8);
    expect(roomOf("a")).toBe(4);
  });

  it("are none for one that wants the latest, since they could not be overtaken any more", () => {
    const { lanes, warm, roomOf } = eight();
    warm("a");
    lanes.add({ ...claimOf("a"), latest: true }, lanes.room());
    expect(roomOf("a")).toBe(3);
  });

  it("are no more than are sent within a tenth of a second", () => {
    const { lanes, attempt, warm, roomOf } = eight();
    warm("a");
    for (let n = 0; n < 200; n++) attempt("a", "accepted", 30);
    expect(lanes.room().total).toBe(8 * 4);
    expect(roomOf("a")).toBe(4 * 4);
  });

  it("are asked for again when half of them are left", () => {
    const { lanes, add, send, warm } = eight();
    warm("a");
    expect(lanes.isHungry("a")).toBe(true);
    add("a", 36);
    send();
    expect(lanes.isHungry("a")).toBe(false);
    for (let n = 0; n < 16; n++) {
      lanes.ended("a", "accepted", 2);
      send();
    }
    expect(lanes.isHungry("a")).toBe(true);
    expect(lanes.hungry).toBe(true);
  });

  it("that waited for a second are given back unsent", () => {
    const { lanes, add, send, warm } = eight();
    warm("a");
    add("a", 7);
    send();
    vi.advanceTimersByTime(1_100);
    lanes.ended("a", "accepted", 200);
    const { claim, stale } = lanes.next();
    expect(claim).toBeUndefined();
    expect(stale).toHaveLength(3);
  });

  it("are taken out when their endpoint is gone, or all at a stop", () => {
    const { lanes, add, prove } = eight();
    prove("a", "b");
    add("a", 3);
    add("b", 2);
    expect(lanes.takeWaiting("a")).toHaveLength(3);
    expect(lanes.takeWaiting("nobody")).toEqual([]);
    expect(lanes.takeWaiting()).toHaveLength(2);
    expect(lanes.next()).toEqual({ claim: undefined, stale: [] });
    expect(lanes.room().total).toBe(8);
  });
});
