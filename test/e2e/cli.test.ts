// The command line as people and scripts meet it: real processes, exit codes, stdout and stderr.
import { describe, expect, it } from "vitest";
import { namespace } from "../../src/database/namespace.ts";
import { cli } from "../support/cli.ts";
import { databaseUrl, freshName, track } from "../support/namespaces.ts";
import { vector } from "../unit/signing/vector.ts";

function environment() {
  const name = freshName();
  const test = track(namespace(name), `${name}_formed`);
  return {
    db: test.db,
    schema: test.namespace.sql,
    env: { DATABASE_URL: databaseUrl(), TAISCE_NAMESPACE: name },
  };
}

const json = async (args: string[], env: Record<string, string>, stdin?: string) => {
  const { code, stdout, stderr } = await cli([...args, "--json"], env, stdin);
  return { code, stderr, document: stdout === "" ? undefined : JSON.parse(stdout) };
};

describe("the producer's and operator's commands", () => {
  it("do their job from migrate to advance, each with one JSON document", async () => {
    const { env, db, schema } = environment();
    const early = await cli(["project", "list"], env);
    expect(early).toMatchObject({ code: 1, stdout: "" });
    expect(early.stderr).toMatch(/run migrate first\n$/);

    expect((await json(["migrate"], env)).document.applied.length).toBeGreaterThan(3);
    expect((await json(["migrate"], env)).document.applied).toEqual([]);
    expect((await json(["project", "create", "p1", "--label", "First"], env)).document).toMatchObject({
      scope: "p1",
      label: "First",
    });
    expect(await cli(["project", "create", "p1"], env)).toMatchObject({
      code: 1,
      stderr: 'taisce-notify project create: project "p1" exists already\n',
    });

    const issued = (await json(["credential", "issue", "ci", "--project", "p1", "--read-only"], env))
      .document;
    expect(Object.keys(issued)).toEqual(["id", "name", "project", "access", "token"]);
    expect(issued).toMatchObject({ name: "ci", project: "p1", access: "read-only" });
    expect(issued.token).toMatch(/^tsk_/);
    const stored = await db.query(`SELECT c::text AS row FROM ${schema}.credential c`);
    expect(JSON.stringify(stored)).not.toContain(issued.token.slice(4));
    const listed = (await json(["credential", "list", "--project", "p1"], env)).document.credentials;
    expect(listed).toMatchObject([{ id: issued.id, revoked_at: null }]);
    expect((await json(["credential", "revoke", issued.id], env)).document.revoked_at).toMatch(/^\d{4}-/);
    expect((await json(["project", "suspend", "p1"], env)).document.suspended_at).toMatch(/^\d{4}-/);
    expect((await json(["project", "resume", "p1"], env)).document.suspended_at).toBeNull();

    expect((await json(["formation", "append", "p1", "--count", "4"], env)).document).toEqual({
      scope: "p1",
      offsets: [0, 1, 2, 3],
    });
    expect((await json(["formation", "form", "p1", "1", "0"], env)).document).toEqual({
      scope: "p1",
      formed: 1,
    });
    expect((await json(["formation", "park", "p1", "2"], env)).document).toEqual({ scope: "p1", formed: 2 });
    const advanced = await cli(
      ["formation", "advance", "p1", "--formed", "9223372036854775807", "--json"],
      env,
    );
    expect(advanced.stdout).toContain('"formed": 9223372036854775807');
    expect((await json(["formation", "advance", "p1", "--formed", "5"], env)).document.moved).toBe(false);
  });

  it("answer --help with 0, wrong usage with 2 and failure with 1, each in one line", async () => {
    const { env } = environment();
    const overview = await cli(["--help"]);
    expect(overview.code).toBe(0);
    const names = [
      "serve",
      "demo",
      "migrate",
      "verify",
      "project create",
      "credential revoke",
      "formation advance",
    ];
    for (const name of names) {
      expect(overview.stdout).toContain(name);
      const help = await cli([...name.split(" "), "--help"]);
      expect(help).toMatchObject({ code: 0, stderr: "" });
      expect(help.stdout).toContain(`usage: taisce-notify ${name}`);
    }
    expect((await cli(["project", "--help"])).stdout).toContain("project suspend");
    for (const args of [
      [],
      ["fly"],
      ["project"],
      ["project", "create"],
      ["project", "create", "a", "b"],
      ["project", "create", "--colour", "red"],
      ["credential", "issue", "x"],
      ["formation", "form", "p1", "one"],
      ["formation", "advance", "p1", "--formed", "5", "--stored", "4"],
      ["verify", "--secret", "00"],
    ]) {
      const { code, stdout, stderr } = await cli(args, env);
      expect([code, stdout], args.join(" ")).toEqual([2, ""]);
      if (args.length > 0) expect(stderr.trimEnd().split("\n").length).toBe(1);
    }
    for (const env of [
      { DATABASE_URL: "postgresql://u:hunter2@127.0.0.1:1/x" },
      { DATABASE_URL: "nonsense-hunter2" },
      { DATABASE_URL: databaseUrl(), TAISCE_PORT: "x" },
    ]) {
      const { code, stdout, stderr } = await cli(["project", "list"], env);
      expect([code, stdout]).toEqual([1, ""]);
      expect(stderr.trimEnd().split("\n").length).toBe(1);
      expect(stderr).not.toContain("hunter2");
    }
  });
});

describe("verify", () => {
  it("accepts the contract's vector and refuses it altered or old", async () => {
    const args = ["verify", "--secret", vector.secret, "--header", vector.header, "--tolerance", "36500d"];
    expect(await cli(args, {}, vector.body)).toEqual({ code: 0, stdout: "verified\n", stderr: "" });
    expect((await json(args, {}, vector.body)).document).toEqual({
      verified: true,
      timestamp: vector.timestamp,
    });
    expect((await json(args, {}, `${vector.body} `)).document).toMatchObject({ verified: false });
    const old = await cli(args.slice(0, -2), {}, vector.body);
    expect(old).toMatchObject({ code: 1, stdout: "" });
    expect(old.stderr).toMatch(/^taisce-notify verify: not verified: .* too long ago .*\n$/);
  });
});
