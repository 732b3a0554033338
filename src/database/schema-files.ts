// The SQL files that make the schema: migrations/NNNN_name.sql, applied once each, and triggers/*.sql,
// replaced whole when their text or the channel changes.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Namespace } from "./namespace.ts";

export interface SchemaFile {
  kind: "migration" | "trigger";
  /** The file's name, which is also its name in the record. */
  name: string;
  sql: string;
  checksum: string;
}

// The same place seen from src/database/ and from dist/database/.
const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** Every migration in order, then every trigger, rendered for one namespace and channel. */
export function readSchemaFiles(namespace: Namespace, channel: string, root = ROOT): SchemaFile[] {
  const migrations = list(`${root}/migrations`, /^\d{4}_[a-z0-9_]+\.sql$/).map((name) => {
    const text = readFileSync(`${root}/migrations/${name}`, "utf8");
    // The checksum is the file's own, so that it is the same in every namespace.
    return file("migration", name, render(text, namespace, channel), text);
  });
  const triggers = list(`${root}/triggers`, /^[a-z0-9_]+\.sql$/).map((name) => {
    const sql = render(readFileSync(`${root}/triggers/${name}`, "utf8"), namespace, channel);
    return file("trigger", name, sql, sql);
  });
  return [...migrations, ...triggers];
}

function list(directory: string, pattern: RegExp): string[] {
  const names = readdirSync(directory).filter((name) => name.endsWith(".sql"));
  const odd = names.find((name) => !pattern.test(name));
  if (odd !== undefined) throw new Error(`${directory}/${odd} is not named like ${pattern.source}`);
  return names.sort();
}

function render(text: string, namespace: Namespace, channel: string): string {
  // Functions, because a replacement string gives $' and $& meanings of their own.
  return text.replaceAll("{schema}", () => namespace.sql).replaceAll("{channel}", () => literal(channel));
}

/** A string constant that holds no dollar sign: it stands inside a body quoted by those. */
function literal(text: string): string {
  const escapes: Record<string, string> = { "\\": "\\\\", "'": "''", $: "\\x24" };
  return `E'${text.replace(/[\\'$]/g, (sign) => escapes[sign] ?? sign)}'`;
}

function file(kind: SchemaFile["kind"], name: string, sql: string, summed: string): SchemaFile {
  return { kind, name, sql, checksum: createHash("sha256").update(summed).digest("hex") };
}
