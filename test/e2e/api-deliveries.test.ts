// deliveries/list and endpoints/list over many rows, against what PostgreSQL itself says of them. The
// service has no engine here, so that the rows stay as the tests wrote them.
import { describe, expect, it } from "vitest";
import {
  type ApiProject,
  apiProject,
  apiService,
  DELIVERIES,
  LIST,
  once,
  PUBLIC,
} from "../support/api-project.ts";
import { exchange } from "../support/exchange.ts";
import type { TestNamespace } from "../support/namespaces.ts";

const service = once(() => apiService());

const STATES = ["pending", "delivered", "parked", "superseded"] as const;

interface Bench {
  project: ApiProject;
  /** Two endpoints. */
  ids: [string, string];
  /** The ids of the project's deliveries, newest first, as PostgreSQL orders them. */
  newestFirst(condition?: string): Promise<string[]>;
  /** One more delivery, written now. */
  write(): Promise<unknown>;
}

/**
 * A project with 203 deliveries in all four states to two endpoints. Seven at a time were written in the
 * same microsecond, and the next seven in the one before it.
 */
async function bench(test: TestNamespace, url: string): Promise<Bench> {
  const project = await apiProject(test, url);
  const [first = "", second = ""] = await project.registerMany(2, (n) => `${PUBLIC}/${n}`);
  const table = `${test.namespace.sql}.notification_delivery`;
  await test.db.query(
    `INSERT INTO ${table} (delivery_id, scope, endpoint_id, formed_through, stored_through, formed_turns,
                           created_at, delivered_at, parked_at, superseded_at, attempts, last_status, last_error)
     SELECT gen_random_uuid(), $1, CASE WHEN n % 3 = 0 THEN $2::uuid ELSE $3::uuid END, n, n + 1, 1,
            '2026-01-01 00:00:00.5Z'::timestamptz - (n / 7) * interval '1 microsecond',
            CASE n % 4 WHEN 1 THEN now() END, CASE n % 4 WHEN 2 THEN now() END, CASE n % 4 WHEN 3 THEN now() END,
            CASE WHEN n % 4 IN (1, 2) THEN 1 ELSE 0 END, CASE n % 4 WHEN 1 THEN 204 WHEN 2 THEN 410 END,
            CASE n % 4 WHEN 2 THEN 'destination refused with 410' END
     FROM generate_series(0, 202) n`,
    [project.scope, first, second],
  );
  let written = 1_000;
  return {
    project,
    ids: [first, second],
    async newestFirst(condition = "true") {
      const rows = await test.db.query<{ id: string }>(
        `SELECT delivery_id AS id FROM ${table} WHERE scope = $1 AND ${condition}
         ORDER BY created_at DESC, delivery_id DESC`,
        [project.scope],
      );
      return rows.map(({ id }) => id);
    },
    write: () =>
      test.db.query(
        `INSERT INTO ${table} (delivery_id, scope, endpoint_id, formed_through, stored_through)
         VALUES (gen_random_uuid(), $1, $2, $3, $3)`,
        [project.scope, first, ++written],
      ),
  };
}

type Page = { deliveries: { id: string; endpoint_id: string; state: string }[]; next?: string };

async function page({ reader }: ApiProject, body: object): Promise<Page> {
  const answer = await reader.post(DELIVERIES, body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body;
}

/** Every page from the newest on; `between` runs between two of them. */
async function everyPage(
  project: ApiProject,
  body: object,
  between?: () => Promise<unknown>,
): Promise<Page[]> {
  const pages = [await page(project, body)];
  for (let next = pages[0]?.next; next !== undefined; next = pages.at(-1)?.next) {
    await between?.();
    pages.push(await page(project, { ...body, after: next }));
  }
  return pages;
}

const idsOf = (pages: Page[]) => pages.flatMap(({ deliveries }) => deliveries.map(({ id }) => id));

describe("deliveries/list", () => {
  it("is newest first, 50 at a time unless 1 to 200 are asked for", async () => {
    const { test, url } = await service();
    const { project, newestFirst } = await bench(test, url);
    const all = await newestFirst();
    for (const [body, length] of [
      [{}, 50],
      [{ limit: 1 }, 1],
      [{ limit: 200 }, 200],
    ] as const) {
      expect(idsOf([await page(project, body)])).toEqual(all.slice(0, length));
    }
  });

  it("is complete and without repeats page by page, while new rows arrive", async () => {
    const { test, url } = await service();
    for (const limit of [3, 7, 50, 200]) {
      const { project, newestFirst, write } = await bench(test, url);
      const all = await newestFirst();
      const pages = await everyPage(project, { limit }, write);
      expect(idsOf(pages), `limit ${limit}`).toEqual(all);
      expect(pages.slice(0, -1).every(({ deliveries }) => deliveries.length === limit)).toBe(true);
      expect(await newestFirst()).toHaveLength(all.length + pages.length - 1);
    }
  });

  it("has no next where the last page is full", async () => {
    const { test, url } = await service();
    const { project, newestFirst } = await bench(test, url);
    const all = await newestFirst();
    const [first, second, ...rest] = await everyPage(project, { limit: 100 });
    expect(idsOf(rest)).toEqual(all.slice(200));
    expect([first?.next, second?.next].every((next) => typeof next === "string")).toBe(true);
    const parked = await page(project, { state: "parked", limit: 51 });
    expect(parked.deliveries).toHaveLength(51);
    expect(parked).not.toHaveProperty("next");
  });

  it("is filtered by endpoint and by state, alone and together, page by page", async () => {
    const { test, url } = await service();
    const { project, ids, newestFirst } = await bench(test, url);
    const conditions = {
      pending: "num_nonnulls(delivered_at, parked_at, superseded_at) = 0",
      delivered: "delivered_at IS NOT NULL",
      parked: "parked_at IS NOT NULL",
      superseded: "superseded_at IS NOT NULL",
    };
    for (const endpoint_id of [undefined, ...ids]) {
      for (const state of [undefined, ...STATES]) {
        const expected = await newestFirst(
          [
            endpoint_id === undefined ? "true" : `endpoint_id = '${endpoint_id}'`,
            state === undefined ? "true" : conditions[state],
          ].join(" AND "),
        );
        const filter = { ...(endpoint_id && { endpoint_id }), ...(state && { state }) };
        const pages = await everyPage(project, { limit: 17, ...filter });
        expect(idsOf(pages), JSON.stringify(filter)).toEqual(expected);
        expect(expected.length).toBeGreaterThan(10);
        for (const one of pages.flatMap(({ deliveries }) => deliveries)) expect(one).toMatchObject(filter);
      }
    }
    expect(await page(project, { endpoint_id: ids[0].toUpperCase(), limit: 1 })).toMatchObject({
      deliveries: [{ endpoint_id: ids[0] }],
    });
  });

  it("leaves out what a delivery does not have", async () => {
    const { test, url } = await service();
    const { project } = await bench(test, url);
    const always = [
      ...["id", "endpoint_id", "url", "formed_through", "stored_through", "formed_turns", "parked_turns"],
      ...["state", "attempts", "created_at"],
    ];
    const fields = {
      pending: [...always, "next_attempt_at"],
      delivered: [...always, "delivered_at", "last_status"],
      parked: [...always, "parked_at", "last_status", "last_error"],
      superseded: always,
    };
    for (const state of STATES) {
      const { deliveries } = await page(project, { state, limit: 1 });
      expect(Object.keys(deliveries[0] ?? {}).sort(), state).toEqual(fields[state].toSorted());
    }
    const { text } = await exchange(url, "POST", DELIVERIES, { token: project.readToken });
    expect(text).not.toContain("null");
    expect(text).not.toContain("2026-01-01T00:00:00.500000");
  });

  it("shows a project its own rows only, whatever cursor it brings", async () => {
    const { test, url } = await service();
    const [mine, theirs] = [await bench(test, url), await bench(test, url)];
    const { next = "" } = await page(theirs.project, { limit: 70 });
    const own = new Set(await mine.newestFirst());
    const pages = await everyPage(mine.project, { after: next });
    expect(idsOf(pages).length).toBeGreaterThan(100);
    expect(idsOf(pages).every((id) => own.has(id))).toBe(true);
    const stranger = await apiProject(test, url);
    expect(await page(stranger, { after: next })).toEqual({ deliveries: [] });
  });
});

describe("endpoints/list", () => {
  it("shows every live endpoint and the 1,000 disabled last, oldest first, and no other project's", async () => {
    const { test, url } = await service();
    const [project, other] = [await apiProject(test, url), await apiProject(test, url)];
    await other.registerMany(1, () => `${PUBLIC}/theirs`);
    const table = `${test.namespace.sql}.notification_endpoint`;
    await test.db.query(
      `INSERT INTO ${table} (endpoint_id, scope, url, secret, created_at, disabled_at)
       SELECT gen_random_uuid(), $1, $2 || n, decode(repeat('00', 32), 'hex'), now() - n * interval '1 s',
              CASE WHEN n % 100 > 0 THEN now() - n * interval '1 ms' END
       FROM generate_series(1, 1200) n`,
      [project.scope, `${PUBLIC}/`],
    );
    const { endpoints } = (await project.reader.post(LIST)).body;
    const numbers = endpoints.map((endpoint: { url: string }) =>
      Number(endpoint.url.slice(PUBLIC.length + 1)),
    );
    const shown = Array.from({ length: 1_200 }, (_, n) => 1_200 - n).filter(
      (n) => n % 100 === 0 || n <= 1_010,
    );
    expect(numbers).toEqual(shown);
    expect((await project.audit()).at(-1)).toMatchObject({
      operation: "notification.list",
      magnitude: 1_012,
    });
  });
});
