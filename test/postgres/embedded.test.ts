// The embedded PostgreSQL: who starts it, who stops it, and what it says where it cannot be had.
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startEmbeddedPostgres } from "../../src/database/embedded.ts";
import {
  ask,
  cleanUp,
  embeddedProcess,
  isRoot,
  NOBODY,
  newDirectory,
  processIds,
  serverPid,
} from "../support/embedded.ts";
import { until } from "../support/until.ts";

const start = (dataDir: string) => startEmbeddedPostgres({ dataDir, serverSettings: ["fsync=off"] });

/** A directory whose database was used once; the tests take copies, because making one takes seconds. */
let used = "";

beforeAll(async () => {
  used = newDirectory();
  const server = await start(used);
  await ask(server.url, "CREATE TABLE kept AS SELECT 42 AS number");
  await server.close();
});

function usedDirectory(): string {
  const directory = newDirectory();
  rmSync(directory, { recursive: true });
  execFileSync("cp", ["-a", used, directory]);
  return directory;
}

afterAll(async () => {
  expect(await cleanUp(), "directories with a server still running").toEqual([]);
});

describe("the server", () => {
  it("keeps its data between starts and runs only while it is used", async () => {
    const directory = usedDirectory();
    for (const round of [1, 2]) {
      const server = await start(directory);
      expect(await ask(server.url, "SELECT number FROM kept"), `round ${round}`).toEqual([{ number: 42 }]);
      expect(serverPid(directory)).toBeDefined();
      await Promise.all([server.close(), server.close()]);
      expect(serverPid(directory)).toBeUndefined();
    }
  });

  it("whose starter was killed is joined by the next process, and stopped by it", async () => {
    const directory = usedDirectory();
    const starter = embeddedProcess(directory);
    const { url } = await starter.next();
    const pid = serverPid(directory);
    await starter.kill();
    expect(serverPid(directory)).toBe(pid);

    const server = await start(directory);
    expect(server.url).toBe(url);
    expect(serverPid(directory)).toBe(pid);
    // Until PostgreSQL notices that the starter is gone, it still counts as a user.
    await until("the killed process's session to end", async () => {
      const sessions = await ask(
        server.url,
        "SELECT FROM pg_stat_activity WHERE application_name = 'taisce-notify presence'",
      );
      return sessions.length === 1;
    });
    await server.close();
    expect(serverPid(directory)).toBeUndefined();
  });

  it("is one for three processes that find an empty directory at once, and ends with the last", async () => {
    const directory = newDirectory();
    const users = [1, 2, 3].map(() => embeddedProcess(directory));
    const started = await Promise.all(users.map((user) => user.next()));
    const url = started[0]?.url ?? "";
    expect(started).toEqual([1, 2, 3].map(() => ({ event: "started", url })));
    // Nothing is left of the two databases that came too late.
    expect(readdirSync(directory)).toEqual(["postgres"]);

    const [first, second, third] = users;
    expect(await first?.leave()).toEqual({ event: "closed" });
    expect(await ask(url, "SELECT 1 AS one")).toEqual([{ one: 1 }]);
    // At once: each must not take the other for somebody who stays.
    expect(await Promise.all([second?.leave(), third?.leave()])).toEqual([
      { event: "closed" },
      { event: "closed" },
    ]);
    expect(serverPid(directory)).toBeUndefined();
  });

  it("does not hear the interrupt that its users' process group gets", async () => {
    const directory = usedDirectory();
    const user = embeddedProcess(directory);
    const { url = "" } = await user.next();
    const pid = serverPid(directory) ?? 0;
    expect(processIds(user.pid).group).toBe(user.pid);
    expect(processIds(pid).group).not.toBe(user.pid);
    expect(processIds(pid).session).toBe(pid);
    const during = new pg.Client({ connectionString: url });
    await during.connect();
    process.kill(-user.pid, "SIGINT");
    expect(await user.next()).toEqual({ event: "interrupted" });
    expect((await during.query("SELECT number FROM kept")).rows).toEqual([{ number: 42 }]);
    expect(await ask(url, "SELECT number FROM kept")).toEqual([{ number: 42 }]);
    await during.end();
    expect(await user.leave()).toEqual({ event: "closed" });
    expect(serverPid(directory)).toBeUndefined();
  });

  it("that restarts itself after a crash is still shared, and still ends with the last", async () => {
    const directory = usedDirectory();
    const users = [embeddedProcess(directory), embeddedProcess(directory)];
    const [{ url = "" } = {}] = await Promise.all(users.map((user) => user.next()));
    const presences = () =>
      ask<{ pid: number }>(
        url,
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'taisce-notify presence'",
      ).catch(() => []);
    const before = await presences();
    const [victim] = before;
    if (before.length !== 2 || victim === undefined) throw new Error("two users were to be there");
    process.kill(victim.pid, "SIGKILL");
    await until("both users to be back", async () => {
      const now = await presences();
      return now.length === 2 && now.every(({ pid }) => before.every((old) => old.pid !== pid));
    });
    await users[0]?.leave();
    expect(await ask(url, "SELECT number FROM kept")).toEqual([{ number: 42 }]);
    await users[1]?.leave();
    expect(serverPid(directory)).toBeUndefined();
  });
});

describe("a postmaster.pid without its server", () => {
  const pidFile = (directory: string) => join(directory, "postgres/postmaster.pid");
  const content = (pid: number | undefined, directory: string) =>
    `${pid}\n${directory}/postgres\n1789128260\n5999\n\n127.0.0.1\n  1234567         7\nready   \n`;

  it("of a process that has ended is no obstacle", async () => {
    const directory = usedDirectory();
    const ended = spawn("true");
    await once(ended, "exit");
    writeFileSync(pidFile(directory), content(ended.pid, directory));
    const server = await start(directory);
    expect(await ask(server.url, "SELECT number FROM kept")).toEqual([{ number: 42 }]);
    await server.close();
  });

  it("whose number is another process's by now is no obstacle either", async () => {
    const directory = usedDirectory();
    // The server's own user: PostgreSQL takes such a process for a server of this directory.
    const { uid, gid } = statSync(join(directory, "postgres"));
    const other = spawn("sleep", ["60"], { cwd: "/", uid, gid });
    await once(other, "spawn");
    writeFileSync(pidFile(directory), content(other.pid, directory));
    const server = await start(directory);
    expect(await ask(server.url, "SELECT number FROM kept")).toEqual([{ number: 42 }]);
    expect(readFileSync(pidFile(directory), "utf8").split("\n")[0]).toBe(String(serverPid(directory)));
    await server.close();
    other.kill();
    expect(readdirSync(join(directory, "postgres")).filter((name) => name.includes(".pid."))).toEqual([]);
  });
});

describe("users", () => {
  it.runIf(isRoot)(
    "under root the server runs as somebody else, and the directory stays root's",
    async () => {
      const directory = newDirectory();
      chmodSync(directory, 0o755);
      writeFileSync(join(directory, "of-the-operator"), "");
      const server = await start(directory);
      expect(processIds(serverPid(directory) ?? 0).uid).not.toBe(0);
      expect(statSync(directory).uid).toBe(0);
      await server.close();
      expect(readdirSync(directory).toSorted()).toEqual(["of-the-operator", "postgres"]);
    },
  );

  it.runIf(isRoot)("under an ordinary user it runs as that user", async () => {
    const directory = newDirectory(NOBODY);
    const user = embeddedProcess(directory, NOBODY);
    expect(await user.next()).toMatchObject({ event: "started" });
    expect(processIds(serverPid(directory) ?? 0).uid).toBe(NOBODY.uid);
    expect(await user.leave()).toEqual({ event: "closed" });
    expect(serverPid(directory)).toBeUndefined();
  });
});

describe("a directory that cannot be used", () => {
  const FIX = "Name a directory this user may write to, or set DATABASE_URL.";

  it.each<[string, (directory: string) => string]>([
    ["a file in its place", (directory) => `${directory}/data`],
    ["a file in the database's place", (directory) => directory],
  ])("because there is %s is named, with what to do", async (_what, choose) => {
    const directory = newDirectory();
    writeFileSync(join(directory, "data"), "");
    writeFileSync(join(directory, "postgres"), "");
    const dataDir = choose(directory);
    await expect(start(dataDir)).rejects.toMatchObject({
      name: "EmbeddedPostgresError",
      message: expect.stringMatching(new RegExp(`^TAISCE_DATA_DIR ${dataDir} cannot be used: .+ ${FIX}$`)),
    });
  });

  it("because the database in it is somebody else's is named, and the database left alone", async () => {
    const directory = newDirectory();
    mkdirSync(join(directory, "postgres"));
    writeFileSync(join(directory, "postgres/PG_VERSION"), "18\n");
    await expect(start(directory)).rejects.toThrow(
      `TAISCE_DATA_DIR ${directory} cannot be used: ${directory}/postgres is not a database that this program made. ${FIX}`,
    );
    expect(readdirSync(join(directory, "postgres"))).toEqual(["PG_VERSION"]);
  });

  it("because it is read-only is named, with what to do", async () => {
    const directory = newDirectory(isRoot ? NOBODY : undefined);
    chmodSync(directory, 0o555);
    const user = embeddedProcess(directory, isRoot ? NOBODY : undefined);
    const { event, name, message } = await user.next();
    expect({ event, name }).toEqual({ event: "failed", name: "EmbeddedPostgresError" });
    expect(message).toContain(`TAISCE_DATA_DIR ${directory} cannot be used: EACCES`);
    expect(message).toContain(FIX);
    chmodSync(directory, 0o755);
  });

  it.runIf(isRoot)("because the server's user cannot reach it is named, with what to do", async () => {
    const directory = newDirectory();
    writeFileSync(join(directory, "of-the-operator"), "");
    await expect(start(directory)).rejects.toThrow(
      new RegExp(`^TAISCE_DATA_DIR ${directory} cannot be used: .*ermission denied.*under root .+ ${FIX}$`),
    );
    expect(readdirSync(directory)).toEqual(["of-the-operator"]);
  });

  it("because the password kept in it is not the server's says so at once, and leaves no server", async () => {
    const directory = usedDirectory();
    writeFileSync(join(directory, "postgres/taisce.password"), "of another database");
    await expect(start(directory)).rejects.toThrow(/it said: password authentication failed/);
    expect(serverPid(directory)).toBeUndefined();
  });

  it("because the database is of another major version says so, and where the log is", async () => {
    const directory = usedDirectory();
    writeFileSync(join(directory, "postgres/PG_VERSION"), "9.6\n");
    await expect(start(directory)).rejects.toMatchObject({
      name: "EmbeddedPostgresError",
      message: expect.stringMatching(
        new RegExp(`${directory}/postgres did not start; it said: .*FATAL:.*incompatible.*taisce\\.log`),
      ),
    });
  });
});
