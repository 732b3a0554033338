// What is said of a delivery after it was made: by the project, by its receiver, by who reads the list.
import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import type { LedgerRow } from "../../src/ledger/ledger.ts";
import { sign } from "../../src/signing/index.ts";
import { api } from "../support/api.ts";
import {
  ADVANCE,
  ATTEST,
  apiProject,
  DELIVER,
  once,
  REGISTER,
  RELEASE,
  ROWS,
  SETTLE,
  UNKNOWN_ID,
} from "../support/api-project.ts";
import { type LedgerBench, ledgerBench } from "../support/ledger.ts";
import { until } from "../support/until.ts";

const bench = once<LedgerBench>(() => ledgerBench());

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const now = () => Math.floor(Date.now() / 1_000);

/** The header that a receiver signs a body with. */
const signature = (secret: string, body: string, at = now()) => ({
  "Taisce-Signature": sign(Buffer.from(secret, "hex"), "any", at, body)["Taisce-Signature"],
});

async function delivered(path: string) {
  const { endpoint, deliver } = await bench();
  const { id, secret } = await endpoint(path);
  const { body } = await deliver(id, "k");
  return { endpointId: id, secret, row: body.delivery as LedgerRow };
}

describe("attesting", () => {
  it("moves a delivery on, and alone sets when it was sent", async () => {
    const { project } = await bench();
    const attest = async (id: string, more: object) =>
      (await project.client.post(ATTEST, { id, ...more })).body;
    const { row } = await delivered("/attested");
    expect(row).not.toHaveProperty("sent_at");
    const { delivery: sent } = await attest(row.id, { status: "sent" });
    expect(sent).toEqual({ ...row, status: "sent", sent_at: expect.stringMatching(RFC3339) });
    expect((await attest(row.id, { status: "sent" })).delivery).toEqual(sent);
    for (const status of ["confirmed", "contradicted", "confirmed"]) {
      expect((await attest(row.id, { status })).delivery).toEqual({ ...sent, status });
    }
    const back = await attest(row.id, { status: "sent" });
    expect(back.error.code).toBe("invalid_body");
    expect(back.error.message).toContain("a delivery that is confirmed cannot become sent");

    const { row: dated } = await delivered("/dated");
    const at = "2026-09-11T11:44:20+02:00";
    const { delivery } = await attest(dated.id, { status: "sent", at });
    expect(delivery.sent_at).toBe("2026-09-11T09:44:20.000Z");
  });

  it("is refused in the words of every route", async () => {
    const { project, test, service } = await bench();
    const { row } = await delivered("/refused");
    const foreign = await apiProject(test, service.url);
    const status = "sent";
    for (const [client, body, expected] of [
      [project.client, { id: row.id, status: "accepted" }, "400 invalid_body"],
      [project.client, { id: row.id, status, at: "yesterday" }, "400 invalid_body"],
      [project.client, { id: row.id, status, at: "2026-02-30T00:00:00Z" }, "400 invalid_body"],
      // In UTC they are in the year 10000, and before the year 0.
      [project.client, { id: row.id, status, at: "9999-12-31T23:59:59-01:00" }, "400 invalid_body"],
      [project.client, { id: row.id, status, at: "0000-01-01T00:00:00+01:00" }, "400 invalid_body"],
      [project.client, { id: row.id }, "400 invalid_body"],
      [project.client, { id: UNKNOWN_ID, status }, "404 not_found"],
      [project.client, { id: "a\0b", status }, "404 not_found"],
      [foreign.client, { id: row.id, status }, "404 not_found"],
      [project.reader, { id: row.id, status }, "403 forbidden"],
      [api(service.url), { id: row.id, status }, "401 unauthenticated"],
    ] as const) {
      const answer = await client.post(ATTEST, body);
      expect(`${answer.status} ${answer.body.error.code}`, JSON.stringify(body)).toBe(expected);
    }
  });

  it("is the receiver's own right, by its endpoint's secret alone", async () => {
    const { service, project } = await bench();
    const { row, secret, endpointId } = await delivered("/signed");
    const receiver = api(service.url);
    const body = JSON.stringify({ id: row.id, status: "sent", at: "2026-09-11T09:44:20Z" });
    const { status, body: answer } = await receiver.post(ATTEST, body, signature(secret, body));
    expect([status, answer.delivery]).toEqual([
      200,
      { ...row, status: "sent", sent_at: "2026-09-11T09:44:20.000Z" },
    ]);
    expect((await project.audit()).at(-1)).toEqual({
      ...{ operation: "delivery.attest", outcome: "allowed", magnitude: 1 },
      ...{ principal: null, project: project.scope, endpoint_id: endpointId },
    });
    const wrong = JSON.stringify({ id: row.id, status: "accepted" });
    expect((await receiver.post(ATTEST, wrong, signature(secret, wrong))).body.error.code).toBe(
      "invalid_body",
    );
  });

  it("tells who has no secret nothing, in one answer", async () => {
    const { service, project } = await bench();
    const { row, secret } = await delivered("/oracle");
    const other = await delivered("/oracle-other");
    const body = (id: string) => JSON.stringify({ id, status: "sent" });
    const strange = randomBytes(32).toString("hex");
    const answers = [];
    for (const [text, headers] of [
      [body(row.id), signature(strange, body(row.id))],
      [body(row.id), signature(other.secret, body(row.id))],
      [body(row.id), signature(secret, body(row.id), now() - 301)],
      [body(row.id), signature(secret, body(row.id), now() + 310)],
      [`${body(row.id)} `, signature(secret, body(row.id))],
      [body(row.id), { "Taisce-Signature": "v1 t=1 s=00" }],
      [body(UNKNOWN_ID), signature(strange, body(UNKNOWN_ID))],
      [body(UNKNOWN_ID), signature("00".repeat(32), body(UNKNOWN_ID))],
      [body("nonsense"), signature(secret, body("nonsense"))],
      ["not json", signature(secret, "not json")],
      ["", signature(secret, "")],
    ] as const) {
      const answer = await api(service.url).post(ATTEST, text, headers);
      answers.push(
        `${answer.status} ${JSON.stringify(answer.body)} ${answer.headers.get("www-authenticate")}`,
      );
    }
    expect(new Set(answers).size).toBe(1);
    expect(answers[0]).toMatch(/^401 .*"unauthenticated"/);
    const { body: listed } = await project.client.post(ROWS, { scope: row.scope });
    expect(listed.deliveries).toEqual([row]);
    await project.suspend();
    const suspended = await api(service.url).post(ATTEST, body(row.id), signature(secret, body(row.id)));
    expect(suspended.status).toBe(401);
    await project.resume();
  });

  it("is counted by its endpoint like the calls of a credential", async () => {
    const { endpoint, deliver, service } = await ledgerBench({ environment: { TAISCE_RATE_LIMIT: "5" } });
    const { id, secret } = await endpoint("/counted");
    const { body: answer } = await deliver(id, "counted");
    const body = JSON.stringify({ id: answer.delivery.id, status: "sent" });
    const statuses = await Promise.all(
      Array.from({ length: 40 }, async () => {
        const { status } = await api(service.url).post(ATTEST, body, signature(secret, body));
        return status;
      }),
    );
    expect(new Set(statuses)).toEqual(new Set([200, 429]));
  });

  it("works for notifications, by the id that came with them", async () => {
    const { project, receiver, endpoint, rows, service } = await bench();
    const { id, secret } = await endpoint("/news");
    await project.client.post(ADVANCE, { formed_through: 4 });
    const request = await receiver.next(({ path }) => path === "/news");
    const delivery = request.headers["webhook-id"] as string;
    const body = JSON.stringify({ id: delivery, status: "confirmed" });
    // Attested while its outcome is still on its way to the ledger, it is not there yet.
    await until("the attestation", async () => {
      const answer = await api(service.url).post(ATTEST, body, signature(secret, body));
      if (answer.status === 404) return false;
      expect(answer.status).toBe(200);
      return true;
    });
    const [row] = await rows({ target: "https/notification", scope: id });
    expect(row).toMatchObject({
      id: delivery,
      identity_id: project.scope,
      idempotency: "4",
      status: "confirmed",
    });
    expect(row?.run_id).toMatch(/^taisce-notify\//);
    await project.client.post("/v1/notifications/endpoints/disable", { id });
  });
});

describe("the list", () => {
  it("shows the project's rows, newest first, a page at a time, by every filter", async () => {
    const { endpoint, deliver, project, test, service } = await bench();
    const { id } = await endpoint("/listed");
    for (let n = 0; n < 5; n++) {
      const more = { run_id: `run-${n % 2}`, identity_id: n === 4 ? "Eve" : "Ann" };
      expect((await deliver(id, `l${n}`, more)).body.outcome).toBe("accepted");
    }
    const keys: string[] = [];
    let after: string | undefined;
    do {
      const { body } = await project.reader.post(ROWS, { scope: id, limit: 2, ...(after && { after }) });
      keys.push(...body.deliveries.map((row: LedgerRow) => row.idempotency));
      after = body.next;
    } while (after !== undefined);
    expect(keys).toEqual(["l4", "l3", "l2", "l1", "l0"]);
    const matching = async (filter: object) =>
      (await project.reader.post(ROWS, { scope: id, ...filter })).body.deliveries.length;
    expect(await matching({ run_id: "run-1" })).toBe(2);
    expect(await matching({ identity_id: "Eve" })).toBe(1);
    expect(await matching({ target: "https/deliver", status: "accepted" })).toBe(5);
    expect(await matching({ target: "https/notification" })).toBe(0);
    for (const status of ["sent", "unconfirmed", "settled"]) expect(await matching({ status })).toBe(0);
    const foreign = await apiProject(test, service.url);
    expect((await foreign.reader.post(ROWS, {})).body).toEqual({ deliveries: [] });
    for (const body of [
      { limit: 0 },
      { limit: 201 },
      { after: "x" },
      { status: "lost" },
      { state: "sent" },
    ]) {
      expect((await project.reader.post(ROWS, body)).body.error.code).toBe("invalid_body");
    }
  });
});

describe("every call", () => {
  it("leaves its entry in the audit, allowed or refused", async () => {
    const { test, service, receiver } = await bench();
    const project = await apiProject(test, service.url);
    const { body: endpoint } = await project.client.post(REGISTER, { url: receiver.url("/audited") });
    const call = {
      target: "https/deliver",
      scope: endpoint.id,
      idempotency: "k",
      identity_id: "i",
      run_id: "r",
    };
    const first = await project.client.post(DELIVER, call);
    await project.client.post(DELIVER, call);
    await project.client.post(ROWS, {});
    await project.client.post(ATTEST, { id: first.body.delivery.id, status: "sent" });
    await project.client.post(SETTLE, { id: first.body.delivery.id });
    await project.client.post(RELEASE, { id: "nobody's" });
    await project.reader.post(DELIVER, call);
    const entries = (await project.audit()).slice(1);
    expect(
      entries.map(({ operation, outcome, magnitude }) => `${operation} ${outcome} ${magnitude}`),
    ).toEqual([
      "delivery.deliver allowed 1",
      "delivery.deliver allowed 0",
      "delivery.list allowed 1",
      "delivery.attest allowed 1",
      "delivery.settle refused 0",
      "delivery.release refused 0",
      "delivery.deliver refused 0",
    ]);
    expect(entries[0]?.endpoint_id).toBe(endpoint.id);
  });
});
