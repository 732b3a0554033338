// docs/receivers.md keeps its word: each `sh` block is run as it stands, and says what the page says it does.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const page = readFileSync(`${root}/docs/receivers.md`, "utf8");
const blocks = Array.from(
  page.matchAll(/^```sh\n(.*?)^```\n\n```text\n(.*?)^```$/gms),
  ([, script, output]) => ({
    script: script ?? "",
    output: output ?? "",
  }),
);

it("has an output for each command", () => {
  expect(blocks.length).toBe(page.match(/^```sh$/gm)?.length);
  expect(blocks.length).toBeGreaterThan(0);
});

for (const { script, output } of blocks) {
  const tool = /openssl|python3|node/.exec(script)?.[0] ?? "sh";
  const found = spawnSync(tool, ["--help"]).error === undefined;
  it.skipIf(!found)(`says ${output.trim().split("\n")[0]}${found ? "" : ` (skipped: no ${tool})`}`, () => {
    const { stdout, stderr } = spawnSync("sh", ["-c", script], { cwd: root });
    expect({ stdout: stdout.toString(), stderr: stderr.toString() }).toEqual({ stdout: output, stderr: "" });
  });
}
