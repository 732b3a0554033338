// taisce-notify groups list | take
import { Formation } from "../formation/formation.ts";
import { GROUP_NAME_PATTERN } from "../ledger/group-name.ts";
import { GroupReaders } from "../ledger/group-readers.ts";
import { Groups, parseGroupCursor } from "../ledger/groups.ts";
import { parseDuration } from "../settings/duration.ts";
import { type Command, count, only, text, UsageError } from "./command.ts";
import { table } from "./table.ts";
import { withConnection } from "./with-connection.ts";

/** A command waits without a listening session: it looks this often. */
const LOOK_EVERY_MS = 200;

export const groupCommands: Command[] = [
  {
    name: "groups list",
    usage: "[--project SCOPE]",
    summary: "Lists the groups that were handed something or that formation is handed to",
    options: { project: { type: "string" } },
    positionals: { min: 0, max: 0 },
    async run({ values, environment }) {
      const groups = await withConnection(environment, ({ db, namespace }) =>
        new Groups(namespace).list(db, text(values, "project")),
      );
      return {
        document: { groups },
        text: table(
          ["PROJECT", "GROUP", "ENDPOINT", "FORMED", "LAST HANDOFF"],
          groups.map((one) => [
            one.project,
            one.group,
            one.endpoint,
            one.formed_through,
            one.last_handoff_at,
          ]),
          "there is no group yet; a project makes one by registering group:NAME or by a deliver to it",
        ),
      };
    },
  },
  {
    name: "groups take",
    usage: "GROUP --project SCOPE [--after CURSOR] [--limit N] [--wait 30s]",
    summary: "Takes a group's handoffs after a cursor, oldest first",
    details:
      "Without --after it begins at the group's first handoff. The cursor to go on from is printed last.\n" +
      "Taking removes nothing: whoever comes with the same cursor gets the same handoffs.\n" +
      "  --limit N   how many at most, 1 to 200 (default 50)\n" +
      "  --wait 30s  how long to wait where there is nothing, at most 60s (default 0s)",
    options: {
      project: { type: "string" },
      after: { type: "string" },
      limit: { type: "string" },
      wait: { type: "string" },
    },
    positionals: { min: 1, max: 1 },
    async run({ positionals, values, environment }) {
      const group = only(positionals);
      if (!GROUP_NAME_PATTERN.test(group)) {
        throw new UsageError(`GROUP must match ${GROUP_NAME_PATTERN.source}, without group: before it`);
      }
      const project = text(values, "project");
      if (project === undefined) throw new UsageError("--project SCOPE is missing");
      const after = text(values, "after");
      if (after !== undefined && parseGroupCursor(group, after) === undefined) {
        throw new UsageError("--after must be a cursor that an earlier take of this group ended with");
      }
      const limit = count(text(values, "limit") ?? "50", "--limit", 1, 200);
      const waitMs = parseDuration(text(values, "wait") ?? "0s");
      if (waitMs === undefined || waitMs > 60_000) {
        throw new UsageError("--wait must be a duration such as 500ms or 30s, at most 60s");
      }
      const page = await withConnection(environment, async ({ db, namespace }) => {
        // A misspelt project is told apart from one that was handed nothing.
        await new Formation(db, namespace).freshness(project);
        const readers = new GroupReaders({ db, groups: new Groups(namespace), lookEveryMs: LOOK_EVERY_MS });
        return readers.take({ project, group }, { after, limit, waitMs });
      });
      return {
        document: page,
        text: `${table(
          ["ID", "IDENTITY", "IDEMPOTENCY", "RUN", "CREATED", "STATUS"],
          page.handoffs.map((one) => [
            one.id,
            one.identity_id,
            one.idempotency,
            one.run_id,
            one.created_at,
            one.status,
          ]),
          "nothing was handed to this group after that",
        )}\nnext: ${page.next}`,
      };
    },
  },
];
