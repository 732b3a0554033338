#!/usr/bin/env node
// The command line: finds the command, checks its arguments, runs it, and turns every ending into an
// exit code — 0 done, 2 called wrongly, 1 failed, with one line on stderr that names the fix.
import { parseArgs } from "node:util";
import { stringifyExact } from "../json/exact.ts";
import { type Command, UsageError } from "./command.ts";
import { credentialCommands } from "./credential.ts";
import { deliveryCommands } from "./deliveries.ts";
import { describeFailure } from "./failure.ts";
import { formationCommands } from "./formation.ts";
import { groupCommands } from "./groups.ts";
import { commandHelp, listHelp } from "./help.ts";
import { migrateCommand } from "./migrate.ts";
import { projectCommands } from "./project.ts";
import { serveCommand } from "./serve.ts";
import { verifyCommand } from "./verify.ts";

const commands: Command[] = [
  serveCommand,
  {
    name: "demo",
    usage: "[--turns N] [--once]",
    summary: "Shows the whole job on this machine: turns form, a real HTTPS receiver is told",
    details:
      "Starts an embedded PostgreSQL and two receivers of its own, and removes all of it at the end.\n" +
      "  --turns N  how many turns to form (default 20)\n" +
      "  --once     end after N turns, non-zero where one was not delivered and verified; without it,\n" +
      "             turns go on until Ctrl-C",
    options: { turns: { type: "string" }, once: { type: "boolean" } },
    positionals: { min: 0, max: 0 },
    // Loaded only when asked for: the demo's certificates come from an optional dependency.
    run: async (invocation) => (await import("./demo.ts")).runDemo(invocation),
  },
  migrateCommand,
  ...projectCommands,
  ...credentialCommands,
  ...formationCommands,
  ...deliveryCommands,
  ...groupCommands,
  verifyCommand,
];

async function main(argv: string[]): Promise<number> {
  const words = argv.slice(0, argv.findIndex((word) => word.startsWith("-")) >>> 0);
  const command = commands.find(({ name }) => name === words.slice(0, name.split(" ").length).join(" "));
  if (command === undefined) return explainUnknown(argv, words);
  try {
    const rest = argv.slice(command.name.split(" ").length);
    const { values, positionals } = parse(command, rest);
    if (values.help === true) {
      process.stdout.write(`${commandHelp(command)}\n`);
      return 0;
    }
    const { min, max } = command.positionals;
    if (positionals.length < min) throw new UsageError("an argument is missing");
    if (positionals.length > max) throw new UsageError(`"${positionals[max]}" is one argument too many`);
    const json = values.json === true;
    const result = await command.run({ positionals, values, environment: process.env, json });
    if (result === undefined) return 0;
    const exitCode = result.exitCode ?? 0;
    if (json) process.stdout.write(`${stringifyExact(result.document, 2)}\n`);
    else if (exitCode === 0) process.stdout.write(`${result.text}\n`);
    if (exitCode !== 0) process.stderr.write(`taisce-notify ${command.name}: ${result.text}\n`);
    return exitCode;
  } catch (error) {
    if (error instanceof UsageError) {
      process.stderr.write(
        `taisce-notify ${command.name}: ${error.message}; usage: ${command.name} ${command.usage}\n`,
      );
      return 2;
    }
    process.stderr.write(`taisce-notify ${command.name}: ${describeFailure(error)}\n`);
    return 1;
  }
}

function parse(command: Command, args: string[]) {
  try {
    return parseArgs({
      args,
      options: { ...command.options, json: { type: "boolean" }, help: { type: "boolean", short: "h" } },
      allowPositionals: true,
      strict: true,
    });
  } catch (error) {
    throw new UsageError((error as Error).message.split(". ")[0] ?? "the arguments cannot be read");
  }
}

function explainUnknown(argv: string[], words: string[]): number {
  const group = commands.filter(({ name }) => name.split(" ")[0] === words[0]);
  const wantsHelp = argv.includes("--help") || argv.includes("-h") || argv[0] === "help";
  if (wantsHelp && (words.length === 0 || words[0] === "help" || group.length > 0)) {
    process.stdout.write(`${listHelp(group.length > 0 ? group : commands)}\n`);
    return 0;
  }
  if (argv.length === 0) process.stderr.write(`${listHelp(commands)}\n`);
  else {
    const known = group.length > 0 ? ` (${group.map(({ name }) => name).join(", ")})` : "";
    process.stderr.write(
      `taisce-notify: there is no command "${words.slice(0, 2).join(" ") || argv[0]}"${known}; see --help\n`,
    );
  }
  return 2;
}

process.exitCode = await main(process.argv.slice(2));
