// The receivers in examples/, run as they stand: against the vector, and as servers over real sockets.

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { sign } from "../../src/signing/index.ts";
import { vector } from "./signing/vector.ts";

const examples = [
  { language: "Node", file: "receiver.mjs", command: process.execPath },
  { language: "Python", file: "receiver.py", command: "python3" },
].map((example) => ({
  ...example,
  path: fileURLToPath(new URL(`../../examples/${example.file}`, import.meta.url)),
  found: spawnSync(example.command, ["--version"]).status === 0,
}));

const running = new Set<ChildProcess>();

afterEach(() => {
  for (const child of running) child.kill("SIGKILL");
  running.clear();
});

describe.each(examples)("the $language receiver", ({ command, path, found, language }) => {
  function check(body: string, header: string, now: string | undefined, secret: string = vector.secret) {
    const args = [path, "--check", secret, header, ...(now === undefined ? [] : [now])];
    const { stdout, stderr, status } = spawnSync(command, args, { input: body });
    return { said: stdout.toString().trim(), stderr: stderr.toString(), status };
  }

  const runs = it.skipIf(!found);
  const title = found ? "" : ` (skipped: ${language} is not on this machine)`;
  const now = String(vector.timestamp);

  runs(`verifies the vector${title}`, () => {
    expect(check(vector.body, vector.header, now)).toEqual({ said: "ok p1 412", stderr: "", status: 0 });
  });

  runs(`keeps the highest offset exact${title}`, () => {
    const body = vector.body.replace("412", "9223372036854775807");
    const header = sign(Buffer.from(vector.secret, "hex"), "id", vector.timestamp, body)["Taisce-Signature"];
    expect(check(body, header, now).said).toBe("ok p1 9223372036854775807");
  });

  runs.each([
    ["an altered body", vector.body.replace("412", "413"), vector.header, now, "signature mismatch"],
    ["a body with a line end", `${vector.body}\n`, vector.header, now, "signature mismatch"],
    ["two spaces", vector.body, vector.header.replace(" s=", "  s="), now, "malformed header"],
    ["upper-case hex", vector.body, vector.header.replace("s=9ac", "s=9AC"), now, "malformed header"],
    ["a line end", vector.body, `${vector.header}\n`, now, "malformed header"],
    ["a negative time", vector.body, vector.header.replace("t=", "t=-"), now, "malformed header"],
    ["full-width digits", vector.body, vector.header.replace("t=1", "t=１"), now, "malformed header"],
    ["a huge time", vector.body, vector.header.replace("t=", "t=9999999"), now, "malformed header"],
    ["no header", vector.body, "", now, "malformed header"],
    ["a replay", vector.body, vector.header, String(vector.timestamp + 301), "timestamp outside tolerance"],
    ["the future", vector.body, vector.header, String(vector.timestamp - 301), "timestamp outside tolerance"],
    ["the vector by the real clock", vector.body, vector.header, undefined, "timestamp outside tolerance"],
  ])(`refuses %s${title}`, (_what, body, header, at, reason) => {
    expect(check(body, header, at)).toEqual({ said: reason, stderr: "", status: 1 });
  });

  runs(`refuses another secret${title}`, () => {
    expect(check(vector.body, vector.header, now, "ab".repeat(32)).said).toBe("signature mismatch");
  });

  runs(`serves, and drops what it knows already${title}`, async () => {
    const child = spawn(command, [path], {
      env: { ...process.env, TAISCE_SECRET: vector.secret, PORT: "0" },
      stdio: ["ignore", "pipe", "inherit"],
    });
    running.add(child);
    const lines = createInterface({ input: child.stdout });
    const said: string[] = [];
    const [first] = (await once(lines, "line")) as [string];
    lines.on("line", (line) => said.push(line));
    const url = `http://127.0.0.1:${first.replace("listening on ", "")}/`;

    async function post(body: string, headers: Record<string, string>): Promise<number> {
      const response = await fetch(url, { method: "POST", body, headers });
      await response.arrayBuffer();
      return response.status;
    }
    const notified = (offset: number) => vector.body.replace("412", String(offset));
    const signed = (body: string) =>
      sign(Buffer.from(vector.secret, "hex"), vector.deliveryId, Math.floor(Date.now() / 1000), body);

    for (const offset of [412, 412, 411, 413]) {
      expect(await post(notified(offset), signed(notified(offset)))).toBe(204);
    }
    expect(await post(notified(500), signed(notified(501)))).toBe(400);
    expect(await post(notified(500), {})).toBe(400);
    // A body that was not a notification, as POST /v1/deliveries/deliver sends one.
    const other = '{"formed_through":900,"ratio":1.5}';
    expect(await post(other, signed(other))).toBe(204);
    expect(await post(notified(414), signed(notified(414)))).toBe(204);
    await expect.poll(() => said.length).toBe(3);
    expect(said).toEqual(["p1 formed through 412", "p1 formed through 413", "p1 formed through 414"]);
  });
});
