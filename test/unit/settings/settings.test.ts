import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { SETTINGS_PAGE, settingsPage } from "../../../scripts/settings-page.ts";
import { formatDuration, parseDuration } from "../../../src/settings/duration.ts";
import { readSettings, SettingsError, unknownVariables } from "../../../src/settings/settings.ts";

const directory = mkdtempSync(join(tmpdir(), "taisce-settings-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function refusal(environment: NodeJS.ProcessEnv): string {
  try {
    readSettings(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(SettingsError);
    return (error as Error).message;
  }
  throw new Error("the settings were accepted");
}

describe("settings", () => {
  it("have the contract's defaults", () => {
    const { destinations, groups, ...rest } = readSettings({});
    expect([destinations.empty, groups.empty]).toEqual([true, true]);
    expect(rest).toEqual({
      dataDir: ".taisce",
      namespace: "taisce",
      role: "all",
      host: "127.0.0.1",
      port: 8080,
      permitPrivate: false,
      attempts: 6,
      backoffMs: 5_000,
      timeoutMs: 5_000,
      concurrency: 64,
      endpointConcurrency: 4,
      ledgerNotifications: true,
      listen: true,
      channel: "taisce_formed",
      reconcileMs: 15_000,
      coalesceMs: 0,
      retentionMs: 2_592_000_000,
      pool: 10,
      rateLimit: 1_000,
      logLevel: "info",
    });
  });

  it("count an empty variable as unset, and derive the channel from the namespace", () => {
    const settings = readSettings({
      TAISCE_PORT: "",
      TAISCE_NOTIFY_CHANNEL: " ",
      TAISCE_NAMESPACE: "memory",
    });
    expect(settings).toMatchObject({ port: 8080, channel: "memory_formed" });
  });

  it("name every bad variable at once, and never a secret's value", () => {
    const message = refusal({
      DATABASE_URL: "mysql://root:hunter2@db/x",
      TAISCE_LISTEN_DATABASE_URL: "hunter3",
      TAISCE_PORT: "99999",
      TAISCE_NOTIFY_BACKOFF: "5 seconds",
      TAISCE_NOTIFY_TIMEOUT: "21s",
      TAISCE_NAMESPACE: "Robert'); DROP",
      TAISCE_NOTIFY_DESTINATIONS: "https://hooks.example.com/,*.example",
      TAISCE_NOTIFY_LISTEN: "yes",
      TAISCE_NOTIFY_CHANNEL: "c".repeat(64),
      TAISCE_NOTIFY_CA_FILE: join(directory, "missing.pem"),
      TAISCE_ROLE: "boss",
    });
    for (const expected of [
      "DATABASE_URL must be a connection string",
      "TAISCE_LISTEN_DATABASE_URL must",
      "TAISCE_PORT must be a whole number from 0 to 65535",
      "TAISCE_NOTIFY_BACKOFF must be a duration such as 500ms",
      "TAISCE_NOTIFY_TIMEOUT must",
      "TAISCE_NAMESPACE must match",
      "https://hooks.example.com/",
      "*.example",
      "TAISCE_NOTIFY_LISTEN must be on or off",
      "TAISCE_NOTIFY_CHANNEL must be at most 63 bytes",
      "TAISCE_NOTIFY_CA_FILE names a file that cannot be read",
      "TAISCE_ROLE must be all or api or worker",
    ]) {
      expect(message).toContain(expected);
    }
    expect(message).not.toContain("hunter");
    expect(message).not.toContain("\n");
  });

  it("refuse a CA file without a certificate", () => {
    const path = join(directory, "empty.pem");
    writeFileSync(path, "");
    expect(refusal({ TAISCE_NOTIFY_CA_FILE: path })).toContain(
      "TAISCE_NOTIFY_CA_FILE names a file that holds no PEM certificate",
    );
    writeFileSync(path, "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
    expect(refusal({ TAISCE_NOTIFY_CA_FILE: path })).toContain("that cannot be read, number 1");
  });

  it("permit private addresses for the word true alone", () => {
    for (const [value, permitted] of Object.entries({
      true: true,
      TRUE: true,
      True: true,
      yes: false,
      "1": false,
      on: false,
      false: false,
    })) {
      expect(readSettings({ TAISCE_NOTIFY_PERMIT_PRIVATE: value }).permitPrivate).toBe(permitted);
    }
  });

  it("take groups out of the destinations, and name each that is none", () => {
    const of = (list: string) => readSettings({ TAISCE_NOTIFY_DESTINATIONS: list });
    const { destinations, groups } = of("group:jobs, hooks.example.com ,group:a-1_b,.example.net");
    expect([groups.permits("jobs"), groups.permits("a-1_b")]).toEqual([true, true]);
    for (const name of ["a", "Jobs", "group:jobs", "*", ""]) expect(groups.permits(name), name).toBe(false);
    for (const host of ["hooks.example.com", "x.example.net"]) expect(destinations.permits(host)).toBe(true);
    for (const host of ["jobs", "group", "group:jobs"]) expect(destinations.permits(host), host).toBe(false);

    const all = of("group:*");
    expect([all.destinations.empty, all.groups.permits("any"), all.groups.permits("*")]).toEqual([
      true,
      true,
      false,
    ]);
    expect(of("hooks.example.com").groups.empty).toBe(true);

    const bad = [
      "group:",
      "group:Jobs",
      "group:1",
      "GROUP:jobs",
      "group: jobs",
      "group:a*",
      `group:${"a".repeat(64)}`,
    ];
    for (const entry of bad) {
      const message = refusal({ TAISCE_NOTIFY_DESTINATIONS: `group:jobs,${entry},hooks.example.com` });
      expect(message).toContain(
        `TAISCE_NOTIFY_DESTINATIONS ${JSON.stringify(entry)} names no group; write group:`,
      );
    }
    const both = refusal({ TAISCE_NOTIFY_DESTINATIONS: "group:Jobs,https://hooks.example.com/" });
    expect(both).toMatch(/"group:Jobs" names no group; .*; "https:\/\/hooks.example.com\/" has a scheme/);
  });

  it("point out variables that are none", () => {
    expect(unknownVariables({ TAISCE_PORT: "1", TAISCE_NOTIFY_ATEMPTS: "3", PATH: "/bin" })).toEqual([
      "TAISCE_NOTIFY_ATEMPTS",
    ]);
  });

  it("are documented as they are: run `npm run docs` where this fails", () => {
    expect(readFileSync(SETTINGS_PAGE, "utf8")).toBe(settingsPage());
  });
});

describe("durations", () => {
  it("read what they write", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 999_999_999 }), (milliseconds) => {
        expect(parseDuration(formatDuration(milliseconds))).toBe(milliseconds);
      }),
    );
    expect(["500ms", "5s", "2m", "12h", "30d"].map(parseDuration)).toEqual([
      500, 5_000, 120_000, 43_200_000, 2_592_000_000,
    ]);
    for (const text of ["5", "s", "-5s", "1.5s", "5 s", "5S", "", "5sm"])
      expect(parseDuration(text)).toBeUndefined();
  });
});
