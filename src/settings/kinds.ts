// The kinds of value a setting can have, each a zod schema that turns an environment variable's text
// into the value the program uses and whose message tells an operator what to write instead.
import { z } from "zod";
import { formatDuration, parseDuration } from "./duration.ts";

/** What the settings page prints about one variable; `secret` keeps its value out of every message. */
export interface SettingMeta {
  variable: string;
  /** The default as the page shows it. */
  shown: string;
  meaning: string;
  secret?: boolean;
}

/** A whole number between two bounds. */
export function wholeNumber(min: number, max: number) {
  return z.string().transform((text, context) => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    context.addIssue({ code: "custom", message: `must be a whole number from ${min} to ${max}` });
    return z.NEVER;
  });
}

/** A duration between two bounds (milliseconds), in milliseconds. */
export function duration(minMs: number, maxMs: number) {
  return z.string().transform((text, context) => {
    const value = parseDuration(text);
    if (value !== undefined && value >= minMs && value <= maxMs) return value;
    context.addIssue({
      code: "custom",
      message: `must be a duration such as 500ms, 5s or 2m, from ${formatDuration(minMs)} to ${formatDuration(maxMs)}`,
    });
    return z.NEVER;
  });
}

/** One of a few words. */
export function oneOf<const Words extends readonly [string, ...string[]]>(words: Words) {
  return z.enum(words, { error: () => `must be ${words.join(" or ")}` });
}

/** A PostgreSQL connection string. */
export function postgresUrl() {
  return z.string().refine((text) => /^postgres(ql)?:\/\//.test(text) && URL.canParse(text), {
    message: "must be a connection string, postgresql://user:password@host:5432/database",
  });
}
