// What a command is, and the two ways it can end badly.
import type { ParseArgsOptionsConfig } from "node:util";

export type Values = Record<string, string | boolean | (string | boolean)[] | undefined>;

export interface Invocation {
  positionals: string[];
  values: Values;
  environment: NodeJS.ProcessEnv;
  /** `--json`: the command's one document goes to stdout, everything else to stderr. */
  json: boolean;
}

/** What a command leaves behind: a document for `--json`, and the same for people. */
export interface Result {
  document: unknown;
  text: string;
  exitCode?: number;
}

export interface Command {
  /** One or two words: `project create`. */
  name: string;
  /** What follows the name: `SCOPE [--label L]`. */
  usage: string;
  summary: string;
  /** More for `--help`, where the summary is not enough. */
  details?: string;
  options?: ParseArgsOptionsConfig;
  /** How many positionals it takes. */
  positionals: { min: number; max: number };
  run(invocation: Invocation): Promise<Result | undefined>;
}

/** The command was called wrongly: exit 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** It was called rightly and failed; the message is one line that names the fix: exit 1. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** The one positional of a command that takes exactly one. */
export function only(positionals: string[]): string {
  const [first] = positionals;
  if (first === undefined) throw new UsageError("an argument is missing");
  return first;
}

/** An option's text; undefined where it was not given. */
export function text(values: Values, name: string): string | undefined {
  const value = values[name];
  return typeof value === "string" ? value : undefined;
}

/** A whole number from 0 to the largest bigint. @throws UsageError */
export function offset(value: string, what: string): bigint {
  const parsed = /^\d{1,19}$/.test(value) ? BigInt(value) : undefined;
  if (parsed === undefined || parsed > 9_223_372_036_854_775_807n) {
    throw new UsageError(`${what} must be a whole number from 0 to 2^63-1, not "${value}"`);
  }
  return parsed;
}

/** A whole number between two bounds. @throws UsageError */
export function count(value: string, what: string, min: number, max: number): number {
  const parsed = /^\d{1,10}$/.test(value) ? Number(value) : Number.NaN;
  if (!(parsed >= min && parsed <= max)) {
    throw new UsageError(`${what} must be a whole number from ${min} to ${max}, not "${value}"`);
  }
  return parsed;
}
