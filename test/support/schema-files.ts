// The product's SQL files, copies of them to be changed, and namespaces to migrate with either.
import { cpSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll } from "vitest";
import { type MigrateOptions, migrate } from "../../src/database/migrate.ts";
import { type Namespace, namespace } from "../../src/database/namespace.ts";
import { databaseUrl, freshName, testNamespace, track } from "./namespaces.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
export const MIGRATIONS = readdirSync(join(ROOT, "migrations")).sort();
export const TRIGGERS = readdirSync(join(ROOT, "triggers")).sort();
export const FILES = [...MIGRATIONS, ...TRIGGERS];

const copies: string[] = [];

afterAll(() => {
  for (const copy of copies) rmSync(copy, { recursive: true, force: true });
});

/** A copy of the product's SQL files, to be changed at will. */
export function copyOfFiles(): string {
  const root = mkdtempSync(join(tmpdir(), "taisce-files-"));
  copies.push(root);
  for (const kind of ["migrations", "triggers"])
    cpSync(join(ROOT, kind), join(root, kind), { recursive: true });
  return root;
}

/** A namespace that does not exist yet, and `migrate` bound to it. */
export function emptyNamespace(name = freshName()) {
  const where = namespace(name);
  const channel = `${name}_formed`;
  const { db } = track(where, channel, { max: 1 });
  return { where, channel, db, run: runIn(where, channel) };
}

export async function currentNamespace() {
  const { namespace: where, channel, db } = await testNamespace({ max: 1 });
  return { where, channel, db, run: runIn(where, channel) };
}

const runIn =
  (where: Namespace, channel: string) =>
  (options: Partial<MigrateOptions> = {}) =>
    migrate({
      url: databaseUrl(),
      namespace: where,
      channel,
      triggers: "install",
      applicationName: `migrate ${where.name}`,
      ...options,
    });
