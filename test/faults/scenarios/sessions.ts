// Faults inside a PostgreSQL that goes on running: sessions ended, deadlocks, and a full disk under the
// deliveries.
import { execFileSync } from "node:child_process";
import { chownSync, closeSync, existsSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { hearingAgain } from "../recovery.ts";
import type { Scenario, Stage } from "../stage.ts";
import type { Endpoint } from "../world.ts";

const LISTENER_LIMIT_MS = 5_000;

async function terminate({ world }: Stage, which: "listeners" | "pools"): Promise<number> {
  const rows = await world.db.query(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name LIKE 'taisce-notify %'
       AND (application_name LIKE '% listener') = $1`,
    [which === "listeners"],
  );
  return rows.length;
}

const listeners: Scenario = {
  name: "terminate-listener",
  shows: "pg_terminate_backend of every listening session: all hear again within 5 s",
  async run(stage) {
    while (stage.goesOn) {
      const since = performance.now();
      await stage.fault("all", async () => {
        stage.promise((await terminate(stage, "listeners")) > 0, "there was no listening session to end");
        await stage.lastWord();
      });
      const took = await hearingAgain(stage.world.replicas, since);
      stage.recovered(took, LISTENER_LIMIT_MS, "hearing again");
      await stage.sleep(1_000);
    }
  },
};

const pools: Scenario = {
  name: "terminate-pool",
  shows: "pg_terminate_backend of every pooled session, whatever it is in the middle of, about every second",
  async run(stage) {
    let ended = 0;
    while (stage.goesOn) {
      await stage.fault("all", async () => {
        ended += await terminate(stage, "pools");
        await stage.lastWord();
      });
      await stage.sleep(700 + Math.random() * 600);
    }
    stage.promise(ended > 0, "there was no pooled session to end");
    stage.notes.push(`${ended} sessions ended`);
  },
};

async function session({ world, options }: Stage, name: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: world.cluster.url, application_name: name });
  client.on("error", () => {});
  await client.connect();
  options.onOpen(() => client.end());
  return client;
}

const deadlocks = async ({ world }: Stage): Promise<bigint> => {
  const [row] = await world.db.query<{ deadlocks: bigint }>(
    "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
  );
  return row?.deadlocks ?? 0n;
};

/**
 * Writes the rows that the owing statement is about to write, in the opposite order, and never commits. With
 * a deadlock_timeout longer than anyone's, it is the product's statement that PostgreSQL gives up.
 */
async function crossOwing(stage: Stage, intruder: pg.Client, endpoints: Endpoint[]): Promise<void> {
  const { sql } = stage.world.namespace;
  const [low, high] = endpoints.toSorted((a, b) => (a.id < b.id ? -1 : 1)) as [Endpoint, Endpoint];
  const insert = (endpoint: Endpoint, ahead: string) =>
    intruder.query(
      `INSERT INTO ${sql}.notification_delivery (delivery_id, scope, endpoint_id, formed_through, stored_through)
       SELECT ${sql}.new_delivery_id(), scope, $2, ${ahead}, ${ahead}
       FROM ${sql}.watermark WHERE scope = $1
       ON CONFLICT DO NOTHING RETURNING formed_through`,
      [endpoint.scope, endpoint.id],
    );
  await intruder.query("BEGIN");
  try {
    const { rows } = await insert(high, "formed_through + 3");
    const offset = BigInt(rows[0]?.formed_through ?? 0);
    for (let looks = 0; looks < 100; looks++) {
      const waiting = await intruder.query(
        "SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) LIMIT 1",
      );
      if (waiting.rowCount !== 0) break;
      await stage.sleep(10);
    }
    await insert(low, String(offset));
  } finally {
    await intruder.query("ROLLBACK");
  }
}

/** Two sessions that lock two projects' watermarks in opposite orders; how many of them were given up. */
async function crossWatermarks(stage: Stage, sessions: [pg.Client, pg.Client]): Promise<number> {
  const lock = async (client: pg.Client, order: "ASC" | "DESC") => {
    const { sql } = stage.world.namespace;
    await client.query("BEGIN");
    try {
      for (const scope of order === "ASC" ? ["busy0", "busy1"] : ["busy1", "busy0"]) {
        await client.query(`SELECT FROM ${sql}.watermark WHERE scope = $1 FOR UPDATE`, [scope]);
        await stage.sleep(30);
      }
    } finally {
      await client.query("ROLLBACK");
    }
  };
  const ends = await Promise.allSettled([lock(sessions[0], "ASC"), lock(sessions[1], "DESC")]);
  return ends.filter(({ status }) => status === "rejected").length;
}

const deadlock: Scenario = {
  name: "deadlock",
  shows:
    "sessions that lock delivery rows and watermark rows in the opposite order; the product's statements are given up",
  async run(stage) {
    const before = await deadlocks(stage);
    const intruder = await session(stage, "faults intruder");
    await intruder.query("SET deadlock_timeout = '20s'");
    const pair = [await session(stage, "faults one"), await session(stage, "faults two")] as const;
    const endpoints = stage.world.endpoints.filter(({ scope }) => scope === "busy3");
    let others = 0;
    while (stage.goesOn) {
      await stage.fault("all", async () => {
        await Promise.all([crossOwing(stage, intruder, endpoints), stage.lastWord()]);
        others += await crossWatermarks(stage, [...pair]);
      });
      await stage.sleep(500);
    }
    for (const client of [intruder, ...pair]) await client.end();
    // Sessions report what they counted a second late.
    await stage.sleep(1_500);
    const own = Number((await deadlocks(stage)) - before) - others;
    stage.promise(own > 0, "no statement of the product's was given up");
    stage.notes.push(`deadlocks: ${own} of the product's statements and ${others} others given up`);
  },
};

const DISK_MB = 96;

const fullDisk: Scenario = {
  name: "full-disk",
  shows: "no room for another page of deliveries, four seconds at a time: SQLSTATE 53100 for every write",
  async run(stage) {
    const disk = await smallDisk(stage);
    stage.notes.push(disk.how);
    try {
      while (stage.goesOn) {
        await stage.fault("all", async () => {
          await disk.fill();
          for (let second = 0; second < 4; second++) {
            await stage.lastWord();
            await stage.sleep(1_000);
          }
          const written = await disk.canWrite();
          stage.promise(!written, "the disk was not full");
          await disk.free();
        });
        await stage.sleep(3_000);
      }
    } finally {
      await disk.remove();
    }
  },
};

interface Disk {
  how: string;
  fill(): Promise<void> | void;
  free(): Promise<void> | void;
  canWrite(): Promise<boolean>;
  /** Frees it for good, and takes the deliveries off it. */
  remove(): Promise<void>;
}

/** A real one in memory where this process may mount it, else a trigger that says what a full one would. */
async function smallDisk(stage: Stage): Promise<Disk> {
  const { world, options } = stage;
  const table = `${world.namespace.sql}.notification_delivery`;
  // Rolled back each time: as wide as a page, so that it needs a new one.
  const canWrite = async () => {
    const client = await session(stage, "faults prober");
    try {
      await client.query("BEGIN");
      await client.query(
        `INSERT INTO ${table} (delivery_id, scope, endpoint_id, formed_through, stored_through)
         SELECT ${world.namespace.sql}.new_delivery_id(), scope, endpoint_id, 1000000 + n, 1000000 + n
         FROM ${world.namespace.sql}.notification_endpoint, generate_series(1, 300) n WHERE scope = 'busy5'`,
      );
      return true;
    } catch (error) {
      if ((error as pg.DatabaseError).code !== "53100") throw error;
      return false;
    } finally {
      await client.end();
    }
  };
  const mountPoint = join(world.cluster.directory, "..", `disk_${world.namespace.name}`);
  try {
    mkdirSync(mountPoint);
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${DISK_MB}m,mode=700`, "tmpfs", mountPoint], {
      stdio: "pipe",
    });
  } catch {
    rmSync(mountPoint, { recursive: true, force: true });
    return { ...(await raisingTrigger(stage, table)), canWrite };
  }
  options.onOpen(() => {
    if (existsSync(mountPoint)) execFileSync("umount", ["--lazy", mountPoint], { stdio: "pipe" });
  });
  const { account } = world.cluster;
  if (account !== undefined) chownSync(mountPoint, account.uid, account.gid);
  const space = `"${world.namespace.name}_disk"`;
  await world.db.query(`CREATE TABLESPACE ${space} LOCATION '${mountPoint}'`);
  await world.db.query(`ALTER TABLE ${table} SET TABLESPACE ${space}`);
  const ballast = join(mountPoint, "ballast");
  return {
    how: `a real full disk: the table on a tmpfs of ${DISK_MB} MB`,
    canWrite,
    fill() {
      const file = openSync(ballast, "w");
      try {
        for (const size of [1 << 20, 4_096]) {
          const bytes = Buffer.alloc(size);
          try {
            for (;;) writeSync(file, bytes);
          } catch (error) {
            if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
          }
        }
      } finally {
        closeSync(file);
      }
    },
    free: () => rmSync(ballast, { force: true }),
    async remove() {
      rmSync(ballast, { force: true });
      await world.db.query(`ALTER TABLE ${table} SET TABLESPACE pg_default`);
      await world.db.query(`DROP TABLESPACE ${space}`);
      execFileSync("umount", [mountPoint], { stdio: "pipe" });
      rmSync(mountPoint, { recursive: true });
    },
  };
}

async function raisingTrigger({ world }: Stage, table: string): Promise<Omit<Disk, "canWrite">> {
  const own = `"${world.namespace.name}_faults"`;
  await world.db.query(`
    CREATE FUNCTION ${own}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
    END $$`);
  const free = async () => {
    await world.db.query(`DROP TRIGGER IF EXISTS faults_full_disk ON ${table}`);
  };
  return {
    how: "a trigger that raises 53100: nothing can be mounted here",
    async fill() {
      await world.db.query(`CREATE TRIGGER faults_full_disk BEFORE INSERT OR UPDATE ON ${table}
                            FOR EACH STATEMENT EXECUTE FUNCTION ${own}.full_disk()`);
    },
    free,
    remove: free,
  };
}

export const sessionScenarios = [listeners, pools, deadlock, fullDisk];
