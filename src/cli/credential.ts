// taisce-notify credential issue | list | revoke
import { Credentials } from "../credentials/credentials.ts";
import { type Command, only, text, UsageError } from "./command.ts";
import { table } from "./table.ts";
import { withConnection } from "./with-connection.ts";

const withCredentials = <Value>(
  environment: NodeJS.ProcessEnv,
  work: (credentials: Credentials) => Promise<Value>,
) => withConnection(environment, ({ db, namespace }) => work(new Credentials(db, namespace)));

export const credentialCommands: Command[] = [
  {
    name: "credential issue",
    usage: "NAME --project SCOPE [--read-only]",
    summary: "Issues a credential and prints its token, this once",
    options: { project: { type: "string" }, "read-only": { type: "boolean" } },
    positionals: { min: 1, max: 1 },
    async run({ positionals, values, environment }) {
      const project = text(values, "project");
      if (project === undefined) throw new UsageError("--project SCOPE is missing");
      const access = values["read-only"] === true ? "read-only" : "read-write";
      const { id, name, token } = await withCredentials(environment, (credentials) =>
        credentials.issue(only(positionals), project, access),
      );
      return {
        document: { id, name, project, access, token },
        text: `${access} credential ${id} (${name}) for project ${project}\ntoken, shown this once: ${token}`,
      };
    },
  },
  {
    name: "credential list",
    usage: "[--project SCOPE]",
    summary: "Lists credentials, oldest first; never their tokens",
    options: { project: { type: "string" } },
    positionals: { min: 0, max: 0 },
    async run({ values, environment }) {
      const credentials = await withCredentials(environment, (store) => store.list(text(values, "project")));
      return {
        document: { credentials },
        text: table(
          ["ID", "NAME", "PROJECT", "ACCESS", "CREATED", "REVOKED"],
          credentials.map((one) => [
            one.id,
            one.name,
            one.project,
            one.access,
            one.created_at.toISOString(),
            one.revoked_at?.toISOString() ?? null,
          ]),
          "there is no credential; issue one with: credential issue NAME --project SCOPE",
        ),
      };
    },
  },
  {
    name: "credential revoke",
    usage: "ID",
    summary: "Revokes a credential; its token is refused from the next request on",
    positionals: { min: 1, max: 1 },
    async run({ positionals, environment }) {
      const revoked = await withCredentials(environment, (credentials) =>
        credentials.revoke(only(positionals)),
      );
      return { document: revoked, text: `revoked credential ${revoked.id} (${revoked.name})` };
    },
  },
];
