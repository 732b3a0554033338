// An endpoint that wants the latest only and is down while ten thousand advances are committed: what waits for
// it, how often it is tried meanwhile, and what it gets when it is back.
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { apiProject, REGISTER } from "../support/api-project.ts";
import { serve } from "../support/cli.ts";
import { exchange } from "../support/exchange.ts";
import { testNamespace } from "../support/namespaces.ts";
import { testAuthority, testReceiver } from "../support/receivers.ts";
import { until } from "../support/until.ts";

const ADVANCES = 10_000;
const AT_ONCE = 250;
const BACKOFF_MS = 500;

it("has one row waiting through an outage of 10,000 advances, is tried no sooner for them, and then gets the newest", async () => {
  const test = await testNamespace();
  let down = true;
  const receiver = await testReceiver({ answer: () => (down ? 503 : 204) });
  const { url } = await serve({
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: (await testAuthority()).caFile,
    TAISCE_NOTIFY_BACKOFF: `${BACKOFF_MS}ms`,
    TAISCE_NOTIFY_ATTEMPTS: "50",
  });
  await until("the listener", async () => {
    return JSON.parse((await exchange(url, "GET", "/ready")).text).listener === "up";
  });
  const { client, scope } = await apiProject(test, url);
  await client.post(REGISTER, { url: receiver.url("/latest"), deliver: "latest" });

  const schema = test.namespace.sql;
  const counts = async () => {
    const [row] = await test.db.query<Record<"waiting" | "pending" | "delivered", number>>(
      `SELECT count(*) FILTER (WHERE pending AND lease_until IS NULL)::integer AS waiting,
              count(*) FILTER (WHERE pending)::integer AS pending,
              count(*) FILTER (WHERE delivered_at IS NOT NULL)::integer AS delivered
       FROM (SELECT d.*, num_nonnulls(delivered_at, parked_at, superseded_at) = 0 AS pending
             FROM ${schema}.notification_delivery d WHERE scope = '${scope}') d`,
    );
    if (row === undefined) throw new Error("no counts");
    return row;
  };
  let mostWaiting = 0;
  let advancing = true;
  const watching = (async () => {
    while (advancing) {
      mostWaiting = Math.max(mostWaiting, (await counts()).waiting);
      await sleep(20);
    }
  })();
  const startedAt = performance.now();
  // Until the first failure is recorded, milliseconds after it, advances are sent as they come.
  await test.db.query(`UPDATE ${schema}.watermark SET formed_through = 0 WHERE scope = '${scope}'`);
  await until("the first failure to be recorded", async () => {
    const [row] = await test.db.query<{ failed: number }>(
      `SELECT count(*)::integer AS failed FROM ${schema}.notification_delivery
       WHERE scope = '${scope}' AND last_status = 503`,
    );
    return (row?.failed ?? 0) > 0;
  });
  for (let from = 1; from < ADVANCES; from += AT_ONCE) {
    await test.db.query(
      `DO $$ BEGIN FOR n IN ${from}..${from + AT_ONCE - 1} LOOP
         UPDATE ${schema}.watermark SET formed_through = n, stored_through = n WHERE scope = '${scope}';
         COMMIT; END LOOP; END $$`,
    );
  }
  await until("the newest to be owed", async () => {
    const [row] = await test.db.query<{ newest: bigint }>(
      `SELECT max(formed_through) AS newest FROM ${schema}.notification_delivery WHERE scope = '${scope}'`,
    );
    return row?.newest === BigInt(ADVANCES);
  });
  const outageMs = performance.now() - startedAt;
  advancing = false;
  await watching;
  // Two for the moment between a failure's record and what follows from it.
  expect(mostWaiting).toBeGreaterThan(0);
  expect(mostWaiting).toBeLessThanOrEqual(2);
  expect(await counts()).toMatchObject({ pending: 1, delivered: 0 });
  // After half a second, one and a half, three and a half: each wait is twice as long, at the least.
  const tries = 1 + Math.floor(Math.log2(outageMs / BACKOFF_MS + 1));
  expect(receiver.received.length).toBeGreaterThan(1);
  expect(receiver.received.length).toBeLessThanOrEqual(tries);

  down = false;
  await until("its delivery", async () => (await counts()).pending === 0, 40_000);
  expect((await counts()).delivered).toBe(1);
  expect(JSON.parse(receiver.received.at(-1)?.rawBody.toString() ?? "").formed_through).toBe(ADVANCES);
}, 90_000);
