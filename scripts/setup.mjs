// Makes a fresh clone runnable: installs the locked packages (Node 24 among them) when node_modules
// is missing or older than package-lock.json. Runs on the machine's own Node, 20 or newer, before
// every npm script; with nothing to do it costs one file comparison. It prints to stderr only, so
// that `npm run -s cli -- … --json` stays one JSON document.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const marker = `${root}node_modules/.taisce-setup`;
const wanted = createHash("sha256")
  .update(readFileSync(`${root}package-lock.json`))
  .update(`${process.platform} ${process.arch}`)
  .digest("hex");

const [major] = process.versions.node.split(".").map(Number);
if (major < 20) {
  console.error(`taisce-notify needs Node 20 or newer to set itself up; this is ${process.version}.`);
  process.exit(1);
}

if (!existsSync(marker) || readFileSync(marker, "utf8") !== wanted) {
  console.error("taisce-notify: installing packages (first run, or package-lock.json changed) …");
  // npm's own progress goes to stderr; its summary on stdout is sent there too.
  const { status, error } = spawnSync(
    process.platform === "win32" ? "npm.cmd" : "npm",
    ["ci", "--include=dev", "--include=optional", "--no-audit", "--no-fund", "--loglevel=error"],
    { cwd: root, stdio: ["ignore", 2, 2], shell: process.platform === "win32" },
  );
  if (error !== undefined || status !== 0) {
    console.error(
      `taisce-notify: npm ci failed${error === undefined ? "" : ` (${error.message})`}. ` +
        "Its message is above; once mended, run the same command again.",
    );
    process.exit(1);
  }
  writeFileSync(marker, wanted);
}
