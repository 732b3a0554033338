// What `--help` prints, made from the commands themselves.
import { VERSION } from "../service/version.ts";
import type { Command } from "./command.ts";
import { table } from "./table.ts";

/** Help for all commands, or for those whose name starts with a word such as `project`. */
export function listHelp(commands: Command[]): string {
  return [
    `taisce-notify ${VERSION}: tells a project's HTTPS endpoints that its memory formed`,
    "",
    "usage: taisce-notify COMMAND [ARGS] [--json] [--help]",
    "",
    table(
      ["COMMAND", "DOES"],
      commands.map(({ name, usage, summary }) => [`${name} ${usage}`.trimEnd(), summary]),
      "",
    ),
    "",
    "Settings are environment variables; docs/settings.md lists them.",
  ].join("\n");
}

export function commandHelp({ name, usage, summary, details }: Command): string {
  return [
    `usage: taisce-notify ${name} ${usage}`.trimEnd(),
    "",
    summary,
    ...(details === undefined ? [] : ["", details]),
    "",
    "  --json   one JSON document on stdout",
    "  --help   this",
  ].join("\n");
}
