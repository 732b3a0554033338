// taisce-notify verify: checks a captured delivery by its Taisce-Signature header
import { buffer } from "node:stream/consumers";
import { parseDuration } from "../settings/duration.ts";
import { explain, verify } from "../signing/index.ts";
import { type Command, text, UsageError } from "./command.ts";

export const verifyCommand: Command = {
  name: "verify",
  usage: "--secret HEX --header VALUE [--tolerance 5m]",
  summary: "Checks a captured delivery; its body comes on stdin, byte for byte",
  options: { secret: { type: "string" }, header: { type: "string" }, tolerance: { type: "string" } },
  positionals: { min: 0, max: 0 },
  async run({ values }) {
    const secret = text(values, "secret");
    const header = text(values, "header");
    if (secret === undefined) throw new UsageError("--secret HEX is missing");
    if (header === undefined) throw new UsageError("--header VALUE is missing");
    const toleranceMs = parseDuration(text(values, "tolerance") ?? "5m");
    if (toleranceMs === undefined) throw new UsageError("--tolerance must be a duration such as 30s or 5m");
    const body = await buffer(process.stdin);
    const result = verify({ secret, header, body, toleranceSeconds: toleranceMs / 1_000 });
    return result.ok
      ? { document: { verified: true, timestamp: result.timestamp }, text: "verified" }
      : {
          document: { verified: false, reason: result.reason },
          text: `not verified: ${explain(result.reason)}`,
          exitCode: 1,
        };
  },
};
