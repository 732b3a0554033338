// What the trigger says, and when it says it (contract section 6), heard by a raw LISTEN session.
import { describe, expect, it } from "vitest";
import { namespace } from "../../src/database/namespace.ts";
import { parseSignal } from "../../src/signals/signal.ts";
import { cli } from "../support/cli.ts";
import { databaseUrl, freshName, track } from "../support/namespaces.ts";
import { on, type Signalling, signalling } from "../support/signalling.ts";

const LARGEST = "9223372036854775807";

const payload = (scope: string, formed: string, stored: string, turns: string, parked: string) =>
  `{"scope":"${scope}","formed_through":${formed},"stored_through":${stored},"formed_turns":${turns},"parked_turns":${parked}}`;

/** A plain UPDATE of the project's watermark, as a memory service may write it. */
const set = ({ client, schema }: Signalling, change: string, scope = "p1") =>
  client.query(`UPDATE ${schema}.watermark SET ${change} WHERE scope = $1`, [scope]);

describe("the payload", () => {
  it("is the contract's, byte for byte", async () => {
    const test = await signalling();
    await test.project("p1");
    await set(test, "formed_through = 409, stored_through = 418");
    await set(test, "formed_through = 412");
    expect(await test.ear.heard()).toEqual([
      payload("p1", "409", "418", "410", "0"),
      `{"scope":"p1","formed_through":412,"stored_through":418,"formed_turns":3,"parked_turns":0}`,
    ]);
  });

  it("stays under 1,000 bytes and readable with the longest scope and the largest numbers", async () => {
    const test = await signalling();
    const scope = "p".repeat(63);
    await test.project(scope);
    await set(
      test,
      `formed_through = ${LARGEST}, stored_through = ${LARGEST}, parked_turns = 2147483647`,
      scope,
    );
    const [heard = ""] = await test.ear.heard();
    // As many turns as an integer column can hold, where there were more.
    expect(heard).toBe(payload(scope, LARGEST, LARGEST, "2147483647", "2147483647"));
    expect(Buffer.byteLength(heard)).toBeLessThan(1_000);
    expect(parseSignal(heard)).toEqual({
      scope,
      formedThrough: BigInt(LARGEST),
      storedThrough: BigInt(LARGEST),
      formedTurns: 2_147_483_647,
      parkedTurns: 2_147_483_647,
    });
  });

  it.each([
    ["null", "0", "1"],
    ["null", "412", "413"],
    ["0", "1", "1"],
    ["412", "415", "3"],
    ["null", "2147483646", "2147483647"],
    ["null", "2147483647", "2147483647"],
    ["0", "2147483648", "2147483647"],
    ["0", LARGEST, "2147483647"],
    ["9223372036854775806", LARGEST, "1"],
  ])("counts the turns from %s to %s as %s", async (from, to, turns) => {
    const test = await signalling();
    await test.project("p1");
    await set(test, `formed_through = ${from}`);
    await test.ear.heard();
    await test.client.query(`SELECT ${test.schema}.advance_watermark('p1', $1)`, [to]);
    expect(await test.ear.heard()).toEqual([payload("p1", to, to, turns, "0")]);
  });
});

describe("a signal", () => {
  it("is sent for a row that arrives with a number, and not for one that arrives with none", async () => {
    const test = await signalling();
    await test.project("p1");
    const insert = async (formed: string) => {
      await test.client.query(`DELETE FROM ${test.schema}.watermark`);
      await test.client.query(
        `INSERT INTO ${test.schema}.watermark (scope, formed_through, stored_through, parked_turns)
         VALUES ('p1', ${formed}, 9, 2)`,
      );
      return test.ear.heard();
    };
    expect(await insert("NULL")).toEqual([]);
    expect(await insert("7")).toEqual([payload("p1", "7", "9", "8", "2")]);
  });

  it("is sent for an upsert that advances", async () => {
    const test = await signalling();
    await test.project("p1");
    await test.client.query(
      `INSERT INTO ${test.schema}.watermark (scope, formed_through, stored_through) VALUES ('p1', 3, 3)
       ON CONFLICT (scope) DO UPDATE SET formed_through = 3, stored_through = 3`,
    );
    expect(await test.ear.heard()).toEqual([payload("p1", "3", "3", "4", "0")]);
  });

  it("is not sent where formed_through does not advance", async () => {
    const test = await signalling();
    await test.project("p1");
    await set(test, "formed_through = 5, stored_through = 8");
    await test.ear.heard();
    await set(test, "formed_through = 5");
    await set(test, "stored_through = 9");
    await set(test, "parked_turns = 1");
    await set(test, "formed_through = 4");
    await set(test, "formed_through = NULL");
    await test.client.query(`SELECT ${test.schema}.append_turn('p1')`);
    expect(await test.ear.heard()).toEqual([]);
  });

  it("is sent only while a live endpoint is there to be told", async () => {
    const test = await signalling();
    await test.project("silent", "none");
    await test.project("told");
    const advance = async (scope: string, formed: number) => {
      await test.client.query(`SELECT ${test.schema}.advance_watermark($1, $2)`, [scope, formed]);
    };
    await advance("silent", 1);
    expect(await test.ear.heard()).toEqual([]);

    await advance("told", 1);
    await test.client.query(`UPDATE ${test.schema}.notification_endpoint SET disabled_at = now()`);
    await advance("told", 2);
    await test.client.query(`UPDATE ${test.schema}.notification_endpoint SET disabled_at = NULL`);
    await advance("told", 3);
    expect(await test.ear.heard()).toEqual([
      payload("told", "1", "1", "2", "0"),
      payload("told", "3", "3", "1", "0"),
    ]);
  });

  it("is sent for each advance, also where one transaction or one statement makes several", async () => {
    const test = await signalling();
    await test.project("p1");
    await test.project("p2");
    await test.client.query("BEGIN");
    for (const formed of [1, 2, 5]) await set(test, `formed_through = ${formed}`);
    await test.client.query("COMMIT");
    expect(await test.ear.heard()).toEqual([
      payload("p1", "1", "1", "2", "0"),
      payload("p1", "2", "2", "1", "0"),
      payload("p1", "5", "5", "3", "0"),
    ]);
    await test.client.query(`UPDATE ${test.schema}.watermark SET formed_through = 6`);
    expect((await test.ear.heard()).toSorted()).toEqual([
      payload("p1", "6", "6", "1", "0"),
      payload("p2", "6", "6", "7", "0"),
    ]);
  });

  it("is not sent for what was rolled back", async () => {
    const test = await signalling();
    await test.project("p1");
    await test.client.query("BEGIN");
    await set(test, "formed_through = 1");
    await test.client.query("SAVEPOINT here");
    await set(test, "formed_through = 2");
    await test.client.query("ROLLBACK TO here");
    await test.client.query("COMMIT");
    await test.client.query("BEGIN");
    await set(test, "formed_through = 3");
    await test.client.query("ROLLBACK");
    expect(await test.ear.heard()).toEqual([payload("p1", "1", "1", "2", "0")]);
  });

  it("is sent for turns as they form", async () => {
    const test = await signalling();
    await test.project("p1");
    await test.client.query(`SELECT ${test.schema}.append_turn('p1') FROM generate_series(1, 4)`);
    for (const turn of [1, 2, 0]) {
      await test.client.query(`SELECT ${test.schema}.form_turn('p1', $1)`, [turn]);
    }
    await test.client.query(`SELECT ${test.schema}.park_turn('p1', 3)`);
    expect(await test.ear.heard()).toEqual([
      payload("p1", "2", "3", "3", "0"),
      payload("p1", "3", "3", "1", "1"),
    ]);
  });
});

describe("channels", () => {
  it("two namespaces of one database do not hear each other", async () => {
    const one = await signalling();
    const two = await signalling();
    await one.project("p1");
    await two.project("p1");
    await set(one, "formed_through = 1");
    await set(two, "formed_through = 2");
    expect(await one.ear.heard()).toEqual([payload("p1", "1", "1", "2", "0")]);
    expect(await two.ear.heard()).toEqual([payload("p1", "2", "2", "3", "0")]);
  });

  it.each([
    `My"Channel'`,
    "UPPER.lower-1",
    "a$$b",
    "x$'y$&z$1",
    "\\back\\'slash",
    "{schema}{channel}",
    "c".repeat(63),
  ])("the channel may be called %s", async (channel) => {
    const where = namespace(freshName());
    track(where, channel);
    const { code, stderr } = await cli(["migrate"], {
      DATABASE_URL: databaseUrl(),
      TAISCE_NAMESPACE: where.name,
      TAISCE_NOTIFY_CHANNEL: channel,
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const test = await on(where.sql, channel);
    await test.project("p1");
    await set(test, "formed_through = 1");
    expect(await test.ear.heard()).toEqual([payload("p1", "1", "1", "2", "0")]);
  });
});
