// taisce-notify formation append | form | park | advance: the producer's side, by hand
import { Formation } from "../formation/formation.ts";
import { type Command, count, offset, only, text, UsageError } from "./command.ts";
import { withConnection } from "./with-connection.ts";

const MAX_INT4 = 2_147_483_647;

const withFormation = <Value>(
  environment: NodeJS.ProcessEnv,
  work: (formation: Formation) => Promise<Value>,
) => withConnection(environment, ({ db, namespace }) => work(new Formation(db, namespace)));

function ending(
  verb: "form" | "park",
  summary: string,
  end: (formation: Formation, scope: string, turn: bigint) => Promise<bigint | null>,
): Command {
  return {
    name: `formation ${verb}`,
    usage: "SCOPE OFFSET…",
    summary,
    positionals: { min: 2, max: 1_000 },
    async run({ positionals: [scope = "", ...given], environment }) {
      const turns = given.map((value) => offset(value, "OFFSET"));
      const formed = await withFormation(environment, async (formation) => {
        let through: bigint | null = null;
        for (const turn of turns) through = await end(formation, scope, turn);
        return through;
      });
      return {
        document: { scope, formed },
        text: formed === null ? `${scope} has not formed yet` : `${scope} is formed through ${formed}`,
      };
    },
  };
}

export const formationCommands: Command[] = [
  {
    name: "formation append",
    usage: "SCOPE [--count N]",
    summary: "Stores the next turn, or the next N",
    options: { count: { type: "string" } },
    positionals: { min: 1, max: 1 },
    async run({ positionals, values, environment }) {
      const scope = only(positionals);
      const number = count(text(values, "count") ?? "1", "--count", 1, 100_000);
      const offsets = await withFormation(environment, (formation) => formation.append(scope, number));
      return {
        document: { scope, offsets },
        text: `stored ${number === 1 ? `turn ${offsets[0]}` : `turns ${offsets[0]} to ${offsets.at(-1)}`} of ${scope}`,
      };
    },
  },
  ending("form", "Marks turns as formed", (formation, scope, turn) => formation.form(scope, turn)),
  ending("park", "Gives turns up; they hold nothing back", (formation, scope, turn) =>
    formation.park(scope, turn),
  ),
  {
    name: "formation advance",
    usage: "SCOPE --formed N [--stored N] [--parked N]",
    summary: "Moves the watermark forward, for a memory service that keeps its own log",
    options: { formed: { type: "string" }, stored: { type: "string" }, parked: { type: "string" } },
    positionals: { min: 1, max: 1 },
    async run({ positionals, values, environment }) {
      const scope = only(positionals);
      const [formed, stored, parked] = ["formed", "stored", "parked"].map((name) => text(values, name));
      if (formed === undefined) throw new UsageError("--formed N is missing");
      const advance = {
        formedThrough: offset(formed, "--formed"),
        storedThrough: stored === undefined ? undefined : offset(stored, "--stored"),
        parkedTurns: parked === undefined ? undefined : count(parked, "--parked", 0, MAX_INT4),
      };
      if (advance.storedThrough !== undefined && advance.storedThrough < advance.formedThrough) {
        throw new UsageError("--stored must not be below --formed: what is formed is stored");
      }
      const { moved, freshness } = await withFormation(environment, async (formation) => ({
        moved: await formation.advance(scope, advance),
        freshness: await formation.freshness(scope),
      }));
      return {
        document: { ...freshness, moved },
        text: `${scope} ${moved ? "moved: it" : "did not move: it"} is stored through ${freshness.stored ?? "nothing"}, formed through ${freshness.formed ?? "nothing"}, ${freshness.parked} parked`,
      };
    },
  },
];
