// A pipeline that may be run again at any time: each of its items is sent once, however often it runs.
//
//   API=http://127.0.0.1:8080 TOKEN=tsk_… ENDPOINT=<id of a registered endpoint> node examples/pipeline.mjs
//
// It exits 1 where something is left to do: run it again for what failed, look at the target for what is held.
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const INVOICES = [
  { customer: "ann", number: "2026-017", total: 42 },
  { customer: "bob", number: "2026-018", total: 7.5 },
  { customer: "eve", number: "2026-019", total: 1200 },
];

/** Sends every invoice that did not go out yet; how many of them came to which outcome. */
export async function run({ api, token, endpoint, runId = randomUUID(), log = console.log }) {
  const counts = { accepted: 0, already_delivered: 0, held: 0, failed: 0 };
  for (const invoice of INVOICES) {
    const response = await fetch(`${api}/v1/deliveries/deliver`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}` },
      body: JSON.stringify({
        target: "https/deliver",
        scope: endpoint,
        // What makes it the same delivery in every run.
        idempotency: `invoice/${invoice.number}`,
        identity_id: invoice.customer,
        run_id: runId,
        variables: invoice,
      }),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${answer.error.code}: ${answer.error.message}`);
    counts[answer.outcome] += 1;
    const why = answer.category === undefined ? "" : ` (${answer.category})`;
    log(`${invoice.number} to ${invoice.customer}: ${answer.outcome}${why}`);
  }
  return counts;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const { API: api = "http://127.0.0.1:8080", TOKEN: token, ENDPOINT: endpoint } = process.env;
  if (token === undefined || endpoint === undefined) {
    console.error("set TOKEN to a read-write token and ENDPOINT to the id of a registered endpoint");
    process.exit(2);
  }
  const { held, failed } = await run({ api, token, endpoint });
  if (held > 0) console.log(`${held} held: see "taisce-notify deliveries list --status unconfirmed"`);
  process.exitCode = held + failed > 0 ? 1 : 0;
}
