// taisce-notify serve: the service, until SIGTERM or SIGINT
import { startService } from "../service/service.ts";
import { readSettings, unknownVariables } from "../settings/settings.ts";
import { createLog } from "../telemetry/log.ts";
import type { Command } from "./command.ts";

export const serveCommand: Command = {
  name: "serve",
  usage: "",
  summary: "Runs the service; SIGTERM and SIGINT drain and exit 0",
  details:
    "Settings come from environment variables: see docs/settings.md. Without DATABASE_URL it starts the\n" +
    "embedded PostgreSQL, and on an empty database prints one read-write token, once. A second signal\n" +
    "ends the process at once.",
  positionals: { min: 0, max: 0 },
  async run({ environment, json }) {
    // Names are looked up on half of libuv's threads at most: with its four, two names whose resolver
    // hangs would hold up every other. It is read when the pool is first used, after this.
    process.env.UV_THREADPOOL_SIZE ??= "16";
    const settings = readSettings(environment);
    const log = createLog(settings.logLevel);
    for (const name of unknownVariables(environment)) {
      log.warn({ name }, "this variable is no setting of this version and was ignored; is it misspelt?");
    }
    // Before anything starts: as a container's first process, Node would ignore the signal otherwise.
    const signalled = firstSignal();
    const service = await startService(settings, log);
    const { url, first } = service;
    if (json) process.stdout.write(`${JSON.stringify({ url, ...first })}\n`);
    else {
      process.stdout.write(`listening on ${url}\n`);
      if (first !== undefined) {
        process.stdout.write(
          `\nproject ${first.project} is ready; its read-write token, shown this once:\n\n  ${first.token}\n\n`,
        );
      }
    }
    const signal = await signalled;
    log.info({ signal }, "stopping");
    await service.stop();
    log.info("stopped");
    return undefined;
  },
};

/** One Ctrl-C reaches the process twice under npm, milliseconds apart: from the terminal and from npm. */
const SAME_SIGNAL_MS = 1_000;

/** The first SIGTERM or SIGINT. A second one, later than an echo of the first, ends the process at once. */
function firstSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let first: number | undefined;
    const onSignal = (name: NodeJS.Signals) => {
      if (first !== undefined && performance.now() - first > SAME_SIGNAL_MS) process.exit(1);
      first ??= performance.now();
      resolve(name);
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
  });
}
