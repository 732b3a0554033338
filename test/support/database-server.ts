// Which PostgreSQL the tests run on: the one TEST_DATABASE_URL names, else a container where an engine
// answers and has the image, else the embedded one.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEmbeddedPostgres } from "../../src/database/embedded.ts";

export interface DatabaseServer {
  url: string;
  /** For the heading of a run. */
  kind: string;
  stop(): Promise<void>;
}

const IMAGE = process.env.TEST_POSTGRES_IMAGE ?? "postgres:17-bookworm";
/** Longest wait for an engine's first answer: one that accepts and stays silent would hold the run up. */
const ENGINE_LIMIT_MS = 1_500;
/** Longest wait for the image, where it is not on this machine yet. */
const PULL_LIMIT_MS = 60_000;

/** Durability costs test time and proves nothing here: what is killed in these tests is never PostgreSQL's power. */
const SETTINGS = ["fsync=off", "max_connections=300"];

export async function startDatabaseServer(): Promise<DatabaseServer> {
  const given = process.env.TEST_DATABASE_URL;
  if (given !== undefined && given !== "") {
    return { url: given, kind: "TEST_DATABASE_URL", stop: async () => {} };
  }
  return (await startContainer()) ?? (await startEmbedded());
}

async function startContainer(): Promise<DatabaseServer | undefined> {
  const { GenericContainer, ImageName, Wait, getContainerRuntimeClient } = await import("testcontainers");
  try {
    const client = await within(ENGINE_LIMIT_MS, getContainerRuntimeClient());
    const image = ImageName.fromString(IMAGE);
    if (!(await client.image.exists(image))) await within(PULL_LIMIT_MS, client.image.pull(image));
    const reaper = process.env.RYUK_CONTAINER_IMAGE ?? "testcontainers/ryuk:0.14.0";
    if (!(await client.image.exists(ImageName.fromString(reaper)))) {
      process.env.TESTCONTAINERS_RYUK_DISABLED ??= "true";
    }
  } catch (error) {
    // No engine is the usual case and needs no word; an engine without the image does.
    const { message } = error as Error;
    if (!/container runtime strategy/.test(message)) {
      console.warn(
        `tests: no container of ${IMAGE} (${message.split("\n")[0]}); using the embedded PostgreSQL`,
      );
    }
    return undefined;
  }
  const container = await new GenericContainer(IMAGE)
    .withEnvironment({ POSTGRES_USER: "taisce", POSTGRES_PASSWORD: "taisce", POSTGRES_DB: "taisce" })
    .withCommand(["postgres", ...SETTINGS.flatMap((setting) => ["-c", setting])])
    .withExposedPorts(5432)
    // Twice: the first time is the server that only creates the database.
    .withWaitStrategy(Wait.forLogMessage(/database system is ready to accept connections/, 2))
    .withStartupTimeout(60_000)
    .start();
  return {
    url: `postgresql://taisce:taisce@${container.getHost()}:${container.getMappedPort(5432)}/taisce`,
    kind: `container of ${IMAGE}`,
    stop: async () => {
      await container.stop({ timeout: 0 });
    },
  };
}

async function startEmbedded(): Promise<DatabaseServer> {
  const directory = mkdtempSync(join(tmpdir(), "taisce-test-"));
  const server = await startEmbeddedPostgres({ dataDir: directory, serverSettings: SETTINGS });
  return {
    url: server.url,
    kind: "embedded PostgreSQL",
    stop: async () => {
      await server.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function within<Value>(limitMs: number, promise: Promise<Value>): Promise<Value> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`no answer in ${limitMs} ms`)), limitMs);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
