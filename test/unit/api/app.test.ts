// The app around its routes, without a database: what a process in the role `worker` answers.
import { describe, expect, it } from "vitest";
import { createApp, type Readiness } from "../../../src/api/app.ts";
import type { Audit } from "../../../src/audit/audit.ts";
import { quiet } from "../../support/quiet.ts";

function worker() {
  const asked: PromiseWithResolvers<Readiness>[] = [];
  const app = createApp({
    routes: [],
    audit: {} as Audit,
    db: { query: async () => [] },
    notificationsOn: true,
    readiness: () => {
      const question = Promise.withResolvers<Readiness>();
      asked.push(question);
      return question.promise;
    },
    version: "0.0.0",
    ...quiet(),
  });
  return { app, asked };
}

describe("readiness", () => {
  it("is asked of the database once for all who want to know at the same time", async () => {
    const { app, asked } = worker();
    const up = { ready: true, database: "up", listener: "up" } as const;
    const answers = Promise.all(Array.from({ length: 50 }, () => app.request("/ready")));
    expect(asked).toHaveLength(1);
    asked[0]?.resolve(up);
    for (const answer of await answers) expect([answer.status, await answer.json()]).toEqual([200, up]);

    const later = app.request("/ready");
    expect(asked).toHaveLength(2);
    asked[1]?.reject(new Error("the check itself failed"));
    expect((await later).status).toBe(500);
    const last = app.request("/ready");
    asked[2]?.resolve({ ...up, ready: false, database: "down" });
    expect((await last).status).toBe(503);
  });
});

describe("a worker", () => {
  it("says that it has no routes, rather than where they are listed", async () => {
    const { app } = worker();
    const answer = await app.request("/openapi.json");
    expect(answer.status).toBe(404);
    expect(((await answer.json()) as { error: { message: string } }).error.message).toContain("health");
  });
});
