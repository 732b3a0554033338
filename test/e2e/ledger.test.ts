// Deliver over HTTP: one send for each key, whoever asks, and what each kind of refusal leaves behind.
import { describe, expect, it } from "vitest";
import { verify } from "../../src/signing/index.ts";
import { api } from "../support/api.ts";
import { apiProject, DELIVER, DISABLE, once, UNKNOWN_ID } from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { gate, type LedgerBench, ledgerBench } from "../support/ledger.ts";
import { until } from "../support/until.ts";

const answers = new Map<string, number | "hang" | "reset">();
const bench = once<LedgerBench>(() =>
  ledgerBench({
    answer: ({ path }) => answers.get(path) ?? 204,
    environment: { TAISCE_NOTIFY_TIMEOUT: "700ms" },
  }),
);

describe("deliver", () => {
  it("sends once, signed, and answers with the row from then on", async () => {
    const { endpoint, deliver, receiver, project, test, sends } = await bench();
    const { id, secret } = await endpoint("/once");
    const variables = { text: "é", n: 9_007_199_254_740_993n, list: [1.5, null, true] };
    const body =
      '{"target":"https/deliver","scope":"SCOPE","idempotency":"k1","identity_id":"Ann","run_id":"r1","variables":{"text":"é","n":9007199254740993,"list":[1.5,null,true]}}';
    const first = await project.client.post(DELIVER, body.replace("SCOPE", id.toUpperCase()));
    expect(first.status).toBe(200);
    expect(first.body).toEqual({
      outcome: "accepted",
      delivery: {
        id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
        identity_id: "Ann",
        target: "https/deliver",
        scope: id,
        idempotency: "k1",
        run_id: "r1",
        created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
        status: "accepted",
        variables_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
      },
    });
    const request = await receiver.next(({ path }) => path === "/once");
    expect(request.rawBody.toString()).toBe('{"text":"é","n":9007199254740993,"list":[1.5,null,true]}');
    expect(request.headers["webhook-id"]).toBe(first.body.delivery.id);
    expect(request.headers["content-type"]).toBe("application/json");
    const header = request.headers["taisce-signature"];
    expect(verify({ secret, header, body: request.rawBody }).ok).toBe(true);
    const again = await deliver(id, "k1", { variables: { ...variables, n: 3 }, run_id: "r2" });
    expect(again.body).toEqual({ outcome: "already_delivered", delivery: first.body.delivery });
    expect(sends("/once")).toBe(1);
    const rows = await test.db.query(`SELECT status, project FROM ${test.namespace.sql}.deliveries`);
    expect(rows).toEqual([{ status: "accepted", project: project.scope }]);
  });

  it("makes one send of twenty callers in two processes that race with one key", async () => {
    const { endpoint, deliver, sends, service, environment } = await bench();
    const other = await serve(environment);
    const { id } = await endpoint("/race");
    const calls = await Promise.all(
      Array.from({ length: 20 }, (_, n) => deliver(id, "race", {}, (n % 2 ? other : service).url)),
    );
    expect(sends("/race")).toBe(1);
    const outcomes = calls.map(({ body }) => body.outcome).sort();
    expect(outcomes).toEqual(["accepted", ...Array<string>(19).fill("already_delivered")]);
    expect(new Set(calls.map(({ body }) => body.delivery.id)).size).toBe(1);
    expect(await other.kill("SIGTERM")).toBe(0);
  });

  it("lets so many callers of one key wait, and asks the others to come again", async () => {
    const gate = Promise.withResolvers<void>();
    const { endpoint, deliver, sends } = await ledgerBench({
      answer: async () => {
        await gate.promise;
        return { status: 204 };
      },
    });
    const { id } = await endpoint("/crowd");
    let refused = 0;
    const calls = Array.from({ length: 80 }, async () => {
      const { status } = await deliver(id, "crowd");
      if (status === 429) refused++;
      return status;
    });
    await until("the refusals", () => refused === 16);
    gate.resolve();
    const statuses = await Promise.all(calls);
    expect(statuses.filter((status) => status === 200)).toHaveLength(64);
    expect(sends("/crowd")).toBe(1);
  });

  it("does not care how the variables are written", async () => {
    const { endpoint, project, receiver, sends } = await bench();
    const { id } = await endpoint("/forms", { idempotency: "native" });
    const call = (variables: string) =>
      project.client.post(
        DELIVER,
        `{"target":"https/deliver","scope":"${id}","idempotency":"k","identity_id":"i","run_id":"r","redeliver":"on_change","variables":${variables}}`,
      );
    const first = await call('{"a":{"x":1,"y":[100]},"b":"\\u00e9"}');
    expect(first.body.outcome).toBe("accepted");
    for (const same of [
      '{"b":"é","a":{"y":[1e2],"x":1.0}}',
      '{"b":"e\\u0301", "a":{"y":[100.0],"x":10e-1}}',
    ]) {
      const { body } = await call(same);
      expect([body.outcome, body.delivery]).toEqual(["already_delivered", first.body.delivery]);
    }
    const moved = await call('{"a":{"x":1,"y":[101]},"b":"é"}');
    expect(moved.body.outcome).toBe("accepted");
    expect(moved.body.delivery.variables_hash).not.toBe(first.body.delivery.variables_hash);
    expect(moved.body.delivery.id).not.toBe(first.body.delivery.id);
    expect(sends("/forms")).toBe(2);
    expect((await receiver.next(({ rawBody }) => rawBody.includes("101"))).headers["webhook-id"]).toBe(
      moved.body.delivery.id,
    );
  });

  it("says why a target refused, records nothing, and tries again when asked", async () => {
    const { endpoint, deliver, rows, receiver, project } = await bench();
    const { id } = await endpoint("/refuses");
    const failed = (category: string) => ({ outcome: "failed", delivery: null, category });
    for (const [answer, category] of [
      [410, "destination refused with 410"],
      [503, "destination answered 503"],
      [302, "redirect not followed"],
    ] as const) {
      answers.set("/refuses", answer);
      expect((await deliver(id, "k")).body).toEqual(failed(category));
    }
    expect(await rows({ scope: id })).toEqual([]);
    answers.set("/refuses", 200);
    expect((await deliver(id, "k")).body.outcome).toBe("accepted");

    const closed = await import("node:net").then(({ createServer }) => createServer().listen(0, "127.0.0.1"));
    await new Promise((listening) => closed.once("listening", listening));
    const { port } = closed.address() as { port: number };
    await new Promise((done) => closed.close(done));
    const { body: gone } = await project.client.post("/v1/notifications/endpoints/register", {
      url: receiver.url("/").replace(/:\d+/, `:${port}`),
    });
    expect((await deliver(gone.id, "k")).body).toEqual(failed("connection refused"));
    expect(await rows({ scope: gone.id })).toEqual([]);
  });

  it("holds what left and was never answered, and sends it again where that does no harm", async () => {
    const { endpoint, deliver, rows, sends } = await bench();
    for (const [answer, category] of [
      ["hang", "timeout"],
      ["reset", "network error"],
      // A gateway's words, not the target's.
      [504, "destination answered 504"],
      [408, "destination refused with 408"],
    ] as const) {
      const { id } = await endpoint(`/${answer}`);
      answers.set(`/${answer}`, answer);
      const { body } = await deliver(id, "k");
      expect(body).toMatchObject({ outcome: "held", category, delivery: { status: "unconfirmed" } });
      expect((await deliver(id, "k")).body).toEqual({ outcome: "held", delivery: body.delivery });
      expect(await rows({ scope: id })).toEqual([body.delivery]);
      expect(sends(`/${answer}`)).toBe(1);
    }
    const { id } = await endpoint("/native", { idempotency: "native" });
    answers.set("/native", "hang");
    expect((await deliver(id, "k")).body).toEqual({ outcome: "failed", delivery: null, category: "timeout" });
    answers.set("/native", 200);
    expect((await deliver(id, "k")).body.outcome).toBe("accepted");
    expect(sends("/native")).toBe(2);
  });

  it("tells a caller right behind a send that died what became of it", async () => {
    const { endpoint, deliver, test, project } = await bench();
    const { id } = await endpoint("/dies");
    // As long as a claim of its own would last: 700 ms and two seconds.
    await test.db.query(
      `INSERT INTO ${test.namespace.sql}.delivery_claim (target, scope, idempotency, id, identity_id, run_id,
                                                         created_at, variables_hash, project, expires_at)
       VALUES ('https/deliver', $1, 'dies', 'somebody else''s', 'i', 'r', '2026-09-11T09:44:20Z', '', $2,
               clock_timestamp() + interval '2.75 s')`,
      [id, project.scope],
    );
    expect((await deliver(id, "dies")).body).toMatchObject({
      outcome: "held",
      delivery: { status: "unconfirmed" },
    });
  });

  it("sends while others wait, who then learn that it was sent", async () => {
    const held = gate();
    const { endpoint, deliver, sends, receiver } = await ledgerBench({
      answer: () => held.wait.then(() => 200 as const),
    });
    const { id } = await endpoint("/slow");
    const first = deliver(id, "k");
    await receiver.next(({ path }) => path === "/slow");
    const second = deliver(id, "k");
    held.open();
    expect((await first).body.outcome).toBe("accepted");
    expect((await second).body.outcome).toBe("already_delivered");
    expect(sends("/slow")).toBe(1);
  });
});

describe("what deliver refuses", () => {
  it("is answered with the codes of every route", async () => {
    const { endpoint, deliver, project, service, test } = await bench();
    const { id } = await endpoint("/errors");
    const foreign = await apiProject(test, service.url);
    const code = async (more: object) => {
      const { status, body } = await deliver(id, "errors", more);
      return `${status} ${body.error?.code}`;
    };
    for (const more of [
      { target: "https/notification" },
      { target: "mail" },
      { target: "group:UPPER" },
      { scope: "" },
      { scope: undefined },
      { idempotency: "" },
      { idempotency: 7 },
      { idempotency: "x".repeat(501) },
      { idempotency: "a\0b" },
      { run_id: undefined },
      { identity_id: "\ud800" },
      { variables: [] },
      { redeliver: "always" },
      { redeliver: "on_change" },
      { unknown: 1 },
    ]) {
      expect(await code(more), JSON.stringify(more)).toBe("400 invalid_body");
    }
    expect(await code({ target: "group:nobody", scope: undefined })).toBe("400 invalid_destination");
    for (const scope of [UNKNOWN_ID, "nonsense"]) expect(await code({ scope })).toBe("404 not_found");
    const asForeigner = await foreign.client.post(DELIVER, {
      target: "https/deliver",
      ...{ scope: id, idempotency: "k", identity_id: "i", run_id: "r" },
    });
    expect([asForeigner.status, asForeigner.body.error.code]).toEqual([404, "not_found"]);
    expect((await project.reader.post(DELIVER, "nonsense")).status).toBe(403);
    expect((await api(service.url).post(DELIVER)).status).toBe(401);
    const deep = `${"[".repeat(200)}${"]".repeat(200)}`;
    const raw = (variables: string) =>
      project.client.post(
        DELIVER,
        `{"target":"https/deliver","scope":"${id}","idempotency":"k","identity_id":"i","run_id":"r","variables":${variables}}`,
      );
    for (const bad of [`{"a":${deep}}`, '{"a":1e400}']) {
      const { status, body } = await raw(bad);
      expect([status, body.error.code]).toEqual([400, "invalid_body"]);
      expect(body.error.message).toMatch(/variables: must not/);
    }
  });

  it("is what a disabled endpoint was not sent before", async () => {
    const { endpoint, deliver, project } = await bench();
    const { id } = await endpoint("/off");
    const { body } = await deliver(id, "before");
    await project.client.post(DISABLE, { id });
    expect((await deliver(id, "before")).body).toEqual({ ...body, outcome: "already_delivered" });
    expect((await deliver(id, "after")).body.error.code).toBe("invalid_destination");
  });

  it("is everything by HTTPS where no host is permitted", async () => {
    const { environment, deliver } = await bench();
    const off = await serve({ ...environment, TAISCE_NOTIFY_DESTINATIONS: "" });
    const { status, body } = await deliver(UNKNOWN_ID, "k", {}, off.url);
    expect([status, body.error.code]).toEqual([501, "notifications_unavailable"]);
    expect(await off.kill("SIGTERM")).toBe(0);
  });
});
