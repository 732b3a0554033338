// `npm start` as a supervisor runs it: the signal it sends reaches the service through npm.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { testNamespace } from "../support/namespaces.ts";
import { until } from "../support/until.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

it("SIGTERM to npm start drains the service and ends with 0", async () => {
  const test = await testNamespace();
  const npm = spawn("npm", ["start"], {
    cwd: ROOT,
    env: {
      ...process.env,
      DATABASE_URL: test.url,
      TAISCE_NAMESPACE: test.namespace.name,
      TAISCE_PORT: "0",
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  npm.stdout.on("data", (chunk) => {
    stdout += chunk;
  });
  npm.stderr.on("data", (chunk) => {
    stderr += chunk;
  });
  const ended = once(npm, "exit");
  await until("the service to listen", () => /listening on http/.test(stdout));
  npm.kill("SIGTERM");
  const [code] = await ended;
  expect(stderr).toContain('"msg":"stopped"');
  expect(code).toBe(0);
});
