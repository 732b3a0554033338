// taisce-notify groups: what operators see of groups, and take from them.
import { describe, expect, it } from "vitest";
import { Groups } from "../../src/ledger/groups.ts";
import { apiProject, REGISTER, TAKE } from "../support/api-project.ts";
import { cli, serve } from "../support/cli.ts";
import { handoff } from "../support/groups.ts";
import { testNamespace } from "../support/namespaces.ts";

describe("the command line", () => {
  it("lists groups and takes from them, for programs and for people", async () => {
    const test = await testNamespace();
    const env = { DATABASE_URL: test.url, TAISCE_NAMESPACE: test.namespace.name };
    const { url } = await serve({ ...env, TAISCE_ROLE: "api", TAISCE_NOTIFY_DESTINATIONS: "group:jobs" });
    const project = await apiProject(test, url);
    const groups = new Groups(test.namespace);
    const inProject = { project: project.scope, scope: project.scope };
    const hand = (key: string) =>
      groups.handOff(test.db, handoff(key, { ...inProject, variables: { n: 1 } }));
    const json = async (...args: string[]) => {
      const { code, stdout, stderr } = await cli([...args, "--json"], env);
      expect({ code, stderr }, args.join(" ")).toEqual({ code: 0, stderr: "" });
      return JSON.parse(stdout);
    };
    expect(await json("groups", "list")).toEqual({ groups: [] });
    await project.client.post(REGISTER, { url: "group:jobs" });
    for (const key of ["a", "b", "c"]) await hand(key);
    const one = { project: project.scope, group: "jobs", endpoint: "live", formed_through: null };
    const listed = await json("groups", "list", "--project", project.scope);
    expect(listed.groups).toEqual([{ ...one, last_handoff_at: expect.stringMatching(/Z$/) }]);

    const ask = ["groups", "take", "jobs", "--project", project.scope];
    const first = await json(...ask, "--limit", "2");
    expect(first).toEqual((await project.reader.post(TAKE, { group: "jobs", limit: 2 })).body);
    const rest = await json(...ask, "--after", first.next);
    expect(rest.handoffs).toMatchObject([{ idempotency: "c" }]);
    const waiting = json(...ask, "--after", rest.next, "--wait", "30s");
    await hand("d");
    expect((await waiting).handoffs).toMatchObject([{ idempotency: "d" }]);
    expect(await json(...ask, "--after", (await waiting).next, "--wait", "50ms")).toMatchObject({
      handoffs: [],
    });
    const shown = (await cli(ask, env)).stdout;
    expect(shown).toMatch(
      /^ID +IDENTITY +IDEMPOTENCY +RUN +CREATED +STATUS\n.+ someone +a +run .+ accepted\n/,
    );
    expect(shown).toMatch(/\nnext: \S+\n$/);

    const wrong = [
      ["groups", "take"],
      ["groups", "take", "jobs"],
      ["groups", "take", "group:jobs", "--project", project.scope],
      [...ask, "--limit", "0"],
      [...ask, "--after", "nonsense"],
      [...ask, "--wait", "61s"],
      [...ask, "more"],
    ];
    for (const { code, stdout, stderr } of await Promise.all(wrong.map((args) => cli(args, env)))) {
      expect([code, stdout, stderr.trimEnd().split("\n").length], stderr).toEqual([2, "", 1]);
    }
    const { code, stderr } = await cli(["groups", "take", "jobs", "--project", "nobody"], env);
    expect([code, stderr]).toEqual([1, 'taisce-notify groups take: project "nobody" does not exist\n']);
  });
});
