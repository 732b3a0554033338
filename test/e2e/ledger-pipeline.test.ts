// examples/pipeline.mjs as it stands: run twice, it sends once.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { ledgerBench } from "../support/ledger.ts";

const PIPELINE = fileURLToPath(new URL("../../examples/pipeline.mjs", import.meta.url));

describe("the pipeline example", () => {
  it("sends nothing the second time", async () => {
    let status = 200;
    const { endpoint, project, service, receiver, rows } = await ledgerBench({ answer: () => status });
    const { id } = await endpoint("/invoices");
    const run = async () => {
      const child = spawn(process.execPath, [PIPELINE], {
        env: { API: service.url, TOKEN: project.token, ENDPOINT: id },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const [said, [code]] = await Promise.all([text(child.stdout), once(child, "exit")]);
      return { code, said: said.trim().split("\n") };
    };
    status = 503;
    expect(await run()).toEqual({
      code: 1,
      said: ["2026-017 to ann", "2026-018 to bob", "2026-019 to eve"].map(
        (item) => `${item}: failed (destination answered 503)`,
      ),
    });
    status = 200;
    const first = await run();
    expect(first.code).toBe(0);
    expect(first.said.every((line) => line.endsWith(": accepted"))).toBe(true);
    const second = await run();
    expect(second.code).toBe(0);
    expect(second.said.every((line) => line.endsWith(": already_delivered"))).toBe(true);
    expect(receiver.received.length).toBe(6);
    expect((await rows()).length).toBe(3);
  });
});
