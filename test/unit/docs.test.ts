// The documentation names nothing that the code does not have, and leaves out nothing that it must name.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { ERROR_STATUS, type ErrorCode } from "../../src/api/errors.ts";
import { type FailureCategory, failed } from "../../src/egress/failure.ts";
import { parseDuration } from "../../src/settings/duration.ts";
import { settingMetas } from "../../src/settings/settings.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");

const pages = readdirSync(join(root, "docs"))
  .filter((name) => name.endsWith(".md"))
  .map((name) => `docs/${name}`)
  .concat(existsSync(join(root, "README.md")) ? "README.md" : []);

const withoutCode = (page: string) => page.replace(/^( *)```.*?^\1```$/gms, "");

/** GitHub's anchor of each heading of a page. */
function anchors(path: string): string[] {
  const headings = withoutCode(read(path)).matchAll(/^#{1,6} (.+)$/gm);
  return Array.from(headings, ([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}_ -]/gu, "")
      .replaceAll(" ", "-"),
  );
}

/** The cells of a table's rows, each without its outer backticks; the table is known by its first heading. */
function table(page: string, heading: string): string[][] {
  const rows = read(page)
    .split("\n\n")
    .find((block) => block.startsWith(`| ${heading} |`))
    ?.trim()
    .split("\n")
    .slice(2);
  if (rows === undefined) throw new Error(`${page} has no table that starts with "${heading}"`);
  return rows.map((row) =>
    row
      .slice(2, -2)
      .split(" | ")
      .map((cell) => cell.trim().replace(/^`([^`]*)`$/, "$1")),
  );
}

const firstColumn = (page: string, heading: string) =>
  table(page, heading)
    .map(([cell]) => cell ?? "")
    .sort();

/** What a pattern's group finds in the sources of a folder, each once, in order. */
function inSource(folder: string, pattern: RegExp): string[] {
  const files = readdirSync(join(root, folder)).filter((name) => name.endsWith(".ts"));
  const found = files.flatMap((name) =>
    Array.from(read(`${folder}/${name}`).matchAll(pattern), ([, group = ""]) => group),
  );
  return [...new Set(found)].sort();
}

describe.each(pages)("%s", (page) => {
  it("links to files and headings that exist", () => {
    const links = Array.from(withoutCode(read(page)).matchAll(/\]\(([^)\s]+)\)/g), ([, link = ""]) => link);
    const broken = links
      .filter((link) => !/^[a-z]+:/.test(link))
      .filter((link) => {
        const [path = "", anchor] = link.split("#");
        const target = path === "" ? page : join(dirname(page), path);
        if (!existsSync(join(root, target))) return true;
        return anchor !== undefined && !anchors(target).includes(anchor);
      });
    expect(broken).toEqual([]);
  });

  it("names settings that exist", () => {
    // The example receivers have variables of their own.
    const examples = readdirSync(join(root, "examples"))
      .map((name) => read(`examples/${name}`))
      .join();
    const known = new Set(settingMetas().map(({ meta }) => meta.variable));
    const named = read(page).match(/\b(?:TAISCE_[A-Z_]+|DATABASE_URL)\b/g) ?? [];
    expect(named.filter((name) => !known.has(name) && !examples.includes(name))).toEqual([]);
  });

  it("names source files and folders that exist", () => {
    const named = read(page).matchAll(/`((?:src|migrations|triggers|scripts|test)\/[\w./-]*\w)`/g);
    const missing = Array.from(named, ([, path = ""]) => path).filter(
      (path) => !path.includes("NNNN") && !existsSync(join(root, path)),
    );
    expect(missing).toEqual([]);
  });
});

describe("the error table", () => {
  it("has every code of the API, with its status", () => {
    expect(firstColumn("docs/http.md", "code")).toEqual(Object.keys(ERROR_STATUS).sort());
    for (const [code, statuses] of table("docs/http.md", "code")) {
      expect(`${code} ${statuses}`).toContain(String(ERROR_STATUS[code as ErrorCode]));
    }
  });
});

describe("the failure categories", () => {
  const declared =
    /export type FailureCategory =(.*?);/s
      .exec(read("src/egress/failure.ts"))?.[1]
      ?.match(/["`][^"`]+["`]/g) ?? [];
  const known = declared
    .map((literal) => literal.slice(1, -1).replace(/\$\{.*\}/, "NNN"))
    .concat("unrecorded")
    .sort();

  it("are all in the table of causes, and nothing else is", () => {
    expect(known.length).toBeGreaterThan(5);
    expect(firstColumn("docs/states.md", "`last_error`")).toEqual(known);
  });

  it("are retried where the table says so", () => {
    for (const [category = "", , retried] of table("docs/states.md", "`last_error`")) {
      if (category === "unrecorded") continue;
      const example = category.replace("NNN", category.includes("refused") ? "410" : "503");
      expect([category, retried]).toEqual([
        category,
        failed(example as FailureCategory).retryable ? "yes" : "no",
      ]);
    }
  });

  it("are the ones the database takes", () => {
    const migration = read("migrations/0003_notifications.sql");
    for (const category of known) expect(migration).toContain(category.replace(" NNN", ""));
  });

  it.each(pages)("are spelled like that in %s", (page) => {
    const spelled = read(page).matchAll(
      /`((?:destination|address|redirect|connection|tls|network) [a-zN ]+)`/g,
    );
    expect(Array.from(spelled, ([, text = ""]) => text).filter((text) => !known.includes(text))).toEqual([]);
  });
});

describe("docs/http.md", () => {
  it("has every metric, and no other", () => {
    const metrics = inSource("src/telemetry", /name: "(taisce_notify_\w+)"/g);
    expect(metrics.length).toBeGreaterThan(5);
    expect(firstColumn("docs/http.md", "metric")).toEqual(metrics);
    const named = read("docs/http.md").match(/taisce_notify_\w+/g) ?? [];
    expect(named.filter((name) => !metrics.includes(name))).toEqual([]);
  });

  it("has a section for every route", () => {
    const routes = inSource("src/api", /path: "(\/v1\/[^"]+)"/g);
    const sections = Array.from(
      read("docs/http.md").matchAll(/^## (?:GET|POST) (\S+)$/gm),
      ([, path]) => path,
    );
    expect(sections.sort()).toEqual(routes);
  });

  it("has every operation that is audited", () => {
    const operations = inSource("src/api", /operation: "(\w+\.\w+|authenticate)"/g);
    const told = firstColumn("docs/http.md", "operation");
    expect(told.filter((operation) => !operations.includes(operation))).toEqual([]);
    expect(operations.filter((operation) => !told.includes(operation))).toEqual(["formation.freshness"]);
  });
});

describe("docs/architecture.md", () => {
  it.each(table("docs/architecture.md", "value"))("has %s for %s in %s", (value, constant, file) => {
    const source = new RegExp(`\\b${constant}(?: =|:) ([\\d_]+)`).exec(read(file ?? ""))?.[1];
    expect(Number(source?.replaceAll("_", ""))).toBe(
      parseDuration((value ?? "").replace(" ", "")) ?? Number(value),
    );
  });

  it("has every statement of the engine", () => {
    const statements = Array.from(
      read("src/notifications/queries.ts").matchAll(/statement\(\s*"(\w+)"/g),
      ([, name]) => `delivery.${name}`,
    );
    expect(
      firstColumn("docs/architecture.md", "statement").filter((cell) => cell.startsWith("delivery.")),
    ).toEqual(statements.sort());
  });

  it("has every folder of the source", () => {
    const told = firstColumn("docs/architecture.md", "folder").join();
    const folders = readdirSync(join(root, "src")).filter((name) => !told.includes(`src/${name}`));
    expect(folders).toEqual([]);
  });
});
