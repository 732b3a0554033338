// taisce-notify project create | list | suspend | resume
import { type Project, Projects } from "../projects/projects.ts";
import { type Command, only, text } from "./command.ts";
import { table } from "./table.ts";
import { withConnection } from "./with-connection.ts";

const withProjects = <Value>(environment: NodeJS.ProcessEnv, work: (projects: Projects) => Promise<Value>) =>
  withConnection(environment, ({ db, namespace }) => work(new Projects(db, namespace)));

function changing(
  verb: "suspend" | "resume",
  summary: string,
  change: (projects: Projects, scope: string) => Promise<Project>,
): Command {
  return {
    name: `project ${verb}`,
    usage: "SCOPE",
    summary,
    positionals: { min: 1, max: 1 },
    async run({ positionals, environment }) {
      const project = await withProjects(environment, (projects) => change(projects, only(positionals)));
      return {
        document: project,
        text: `project ${project.scope} is ${project.suspended_at === null ? "live" : "suspended"}`,
      };
    },
  };
}

export const projectCommands: Command[] = [
  {
    name: "project create",
    usage: "SCOPE [--label L]",
    summary: "Creates a project; its scope is its identity",
    options: { label: { type: "string" } },
    positionals: { min: 1, max: 1 },
    async run({ positionals, values, environment }) {
      const project = await withProjects(environment, (projects) =>
        projects.create(only(positionals), text(values, "label")),
      );
      return { document: project, text: `created project ${project.scope}` };
    },
  },
  {
    name: "project list",
    usage: "",
    summary: "Lists the projects, oldest first",
    positionals: { min: 0, max: 0 },
    async run({ environment }) {
      const projects = await withProjects(environment, (store) => store.list());
      return {
        document: { projects },
        text: table(
          ["SCOPE", "LABEL", "CREATED", "STATE"],
          projects.map((project) => [
            project.scope,
            project.label,
            project.created_at.toISOString(),
            project.suspended_at === null ? "live" : "suspended",
          ]),
          "there is no project yet; create one with: project create SCOPE",
        ),
      };
    },
  },
  changing(
    "suspend",
    "Refuses the project's credentials until it is resumed; what is owed still goes out",
    (projects, scope) => projects.suspend(scope),
  ),
  changing("resume", "Accepts a suspended project's credentials again", (projects, scope) =>
    projects.resume(scope),
  ),
];
