// Faults of the replicas' own processes: killed, frozen for longer than a lease, with a wrong clock, and
// joined by new ones that migrate.
import { execFile } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { promisify } from "node:util";
import { until } from "../../support/until.ts";
import { MAIN, Replica } from "../replica.ts";
import { type Scenario, Skip, type Stage } from "../stage.ts";
import { LEASE_MS } from "../world.ts";

const run = promisify(execFile);

const KILL_EVERY_MS = 3_000;
const CLOCK_SHIFT_MS = 3_600_000;
const PRELOAD = new URL("../clock-shift.ts", import.meta.url).href;

const someone = ({ world }: Stage) =>
  world.replicas[Math.floor(Math.random() * world.replicas.length)] as Replica;

const kill: Scenario = {
  name: "kill",
  shows: "SIGKILL of one of three replicas every three seconds; it is started again at once",
  everyAdvance: true,
  async run(stage) {
    while (stage.goesOn) {
      await stage.sleep(KILL_EVERY_MS);
      const replica = someone(stage);
      await stage.fault([replica], async () => {
        const ended = replica.end("SIGKILL");
        await stage.lastWord();
        await ended;
      });
      await replica.start();
    }
  },
};

/** Deliveries whose claim one life holds, or that another life has taken over from it. */
async function held({ world }: Stage, who: string, times: "held" | "taken over"): Promise<string[]> {
  const rows = await world.db.query<{ delivery_id: string }>(
    `SELECT d.delivery_id FROM ${world.namespace.sql}.notification_delivery d
     CROSS JOIN LATERAL (SELECT c.who, c.lease FROM "${world.namespace.name}_faults".change c
                         WHERE c.delivery_id = d.delivery_id AND c.claimed ORDER BY c.seq DESC LIMIT 2) last
     WHERE d.lease_until IS NOT NULL AND last.who = $1
       AND ${times === "held" ? "last.lease = d.lease" : "last.lease < d.lease"}`,
    [who],
  );
  return rows.map(({ delivery_id }) => delivery_id);
}

const stop: Scenario = {
  name: "stop",
  shows:
    "SIGSTOP of a replica for longer than its leases, SIGCONT while others are sending what it had: its outcomes change nothing",
  everyAdvance: true,
  async run(stage) {
    while (stage.goesOn) {
      const replica = someone(stage);
      await stage.fault([replica], async () => {
        // Frozen while it holds something, and thawed at the moment at which its outcomes do most harm.
        await until("a claim to freeze", async () => {
          replica.signal("SIGSTOP");
          if ((await held(stage, replica.who, "held")).length > 0) return true;
          replica.signal("SIGCONT");
          return false;
        });
        try {
          await stage.lastWord();
          await stage.sleep(LEASE_MS - 1_000);
          const met = await until(
            "another replica to send what the frozen one had",
            async () => (await held(stage, replica.who, "taken over")).length > 0,
            8_000,
          ).catch(() => false);
          if (met === false) stage.notes.push("once thawed with nothing under way of what it had");
        } finally {
          replica.signal("SIGCONT");
        }
      });
      await stage.sleep(1_500);
    }
  },
};

/** libfaketime, which shifts the clock for everything in a process; JavaScript's alone where it is missing. */
function wrongClock(shiftMs: number): { environment: Record<string, string>; by: string } {
  const library = readdirSync("/usr/lib", { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => `/usr/lib/${name}/faketime/libfaketime.so.1`)
    .find((path) => existsSync(path));
  if (library === undefined) {
    return {
      environment: { NODE_OPTIONS: `--import=${PRELOAD}`, FAULTS_CLOCK_SHIFT_MS: String(shiftMs) },
      by: "JavaScript's clock only: libfaketime is not installed",
    };
  }
  const shift = `${shiftMs > 0 ? "+" : ""}${shiftMs / 1_000}s`;
  return {
    environment: { LD_PRELOAD: library, FAKETIME: shift, FAKETIME_DONT_FAKE_MONOTONIC: "1" },
    by: "the processes' clock, by libfaketime",
  };
}

const clock: Scenario = {
  name: "clock",
  shows:
    "one replica an hour ahead, one an hour behind, one of them killed now and then: signatures keep the right time",
  everyAdvance: true,
  async run(stage) {
    const [ahead, behind] = stage.world.replicas as [Replica, Replica, Replica];
    for (const [replica, shiftMs] of [
      [ahead, CLOCK_SHIFT_MS],
      [behind, -CLOCK_SHIFT_MS],
    ] as const) {
      const { environment, by } = wrongClock(shiftMs);
      const code = await stage.fault([replica], () => replica.end("SIGTERM"));
      stage.promise(code === 0, `a replica stopped with ${code}, not 0`);
      replica.environment = environment;
      await replica.start();
      if (shiftMs > 0) stage.notes.push(by);
      const offBy = (await replica.clock()) - Date.now();
      if (Math.abs(offBy - shiftMs) > 60_000) throw new Skip(`the clock could not be shifted (${by})`);
    }
    for (let kills = 0; kills === 0 || stage.goesOn; kills++) {
      await stage.sleep(4_000);
      const replica = Math.random() < 0.5 ? ahead : behind;
      await stage.fault([replica], async () => {
        await replica.end("SIGKILL");
        await stage.lastWord();
      });
      await replica.start();
    }
  },
};

const migrate: Scenario = {
  name: "migrate",
  shows: "new replicas come, put the trigger up to date together under load, serve and leave cleanly",
  everyAdvance: true,
  async run(stage) {
    const { world } = stage;
    const [first] = world.replicas as [Replica];
    while (stage.goesOn) {
      // As an upgrade finds it: what is applied is older than what the new ones bring.
      const [record] = await world.db.query<{ name: string }>(
        `UPDATE ${world.namespace.sql}.schema_file SET checksum = 'older' WHERE kind = 'trigger' RETURNING name`,
      );
      const newcomers = [1, 2].map(
        (n) =>
          new Replica({
            name: `new${n}_${stage.faults.length}`,
            directory: world.directory,
            link: first.link,
            environment: first.settings,
          }),
      );
      for (const one of newcomers) stage.options.onOpen(() => one.signal("SIGKILL"));
      await stage.fault(newcomers, async () => {
        await Promise.all([
          ...newcomers.map((one) => one.start()),
          run(process.execPath, [MAIN, "migrate", "--json"], { env: first.settings }),
          stage.lastWord(),
        ]);
        await stage.sleep(1_500);
        const codes = await Promise.all(newcomers.map((one) => one.end("SIGTERM")));
        stage.promise(
          codes.every((code) => code === 0),
          `newcomers stopped with ${codes.join(" and ")}`,
        );
      });
      const [applied] = await world.db.query<{ checksum: string }>(
        `SELECT checksum FROM ${world.namespace.sql}.schema_file WHERE name = $1`,
        [record?.name],
      );
      stage.promise(applied?.checksum !== "older", "the trigger was not put up to date");
    }
  },
};

export const processScenarios = [kill, stop, clock, migrate];
