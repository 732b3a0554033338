// Every setting of the service, declared once: its variable, its default, its meaning and its check.
// The start-up check, the typed values and the table in docs/settings.md all come from here.
import { readFileSync } from "node:fs";
import { z } from "zod";
import { NAMESPACE_PATTERN } from "../database/namespace.ts";
import {
  CertificateAuthorityError,
  checkCertificates,
  DestinationListError,
  type Destinations,
  parseDestinations,
} from "../egress/index.ts";
import type { PermittedGroups } from "../ledger/group-name.ts";
import { splitGroups } from "./group-entries.ts";
import { duration, oneOf, postgresUrl, type SettingMeta, wholeNumber } from "./kinds.ts";

const DAY = 86_400_000;

/** PostgreSQL cuts longer identifiers short, and a cut channel name hears nothing. */
const MAX_CHANNEL_BYTES = 63;

const destinations = z
  .string()
  .default("")
  .transform((text, context) => {
    const { groups, hosts, problems } = splitGroups(text);
    try {
      const destinations = parseDestinations(hosts);
      if (problems.length === 0) return { destinations, groups };
    } catch (error) {
      if (!(error instanceof DestinationListError)) throw error;
      problems.push(...error.problems);
    }
    context.addIssue({ code: "custom", message: problems.join("; ") });
    return z.NEVER;
  });

const caFile = z.string().transform((path, context) => {
  try {
    const pem = readFileSync(path, "utf8");
    checkCertificates(pem);
    return pem;
  } catch (error) {
    const problem = error instanceof CertificateAuthorityError ? error.message : "cannot be read";
    context.addIssue({ code: "custom", message: `names a file that ${problem}` });
    return z.NEVER;
  }
});

const channel = z
  .string()
  .refine((text) => Buffer.byteLength(text) <= MAX_CHANNEL_BYTES, {
    message: `must be at most ${MAX_CHANNEL_BYTES} bytes long`,
  })
  .refine((text) => /^[\x21-\x7e]+$/.test(text), { message: "must be printable ASCII without spaces" });

// Failure policy: fail closed — anything but the word `true` keeps private addresses out of reach.
const permitPrivate = z
  .string()
  .default("false")
  .transform((text) => text.trim().toLowerCase() === "true");

function setting<Schema extends z.ZodType>(schema: Schema, meta: SettingMeta): Schema {
  return schema.meta({ ...meta });
}

export const settingsSchema = z.object({
  databaseUrl: setting(postgresUrl().optional(), {
    variable: "DATABASE_URL",
    shown: "unset",
    meaning: "PostgreSQL 14 or newer. Unset: an embedded PostgreSQL kept in `TAISCE_DATA_DIR`.",
    secret: true,
  }),
  listenDatabaseUrl: setting(postgresUrl().optional(), {
    variable: "TAISCE_LISTEN_DATABASE_URL",
    shown: "`DATABASE_URL`",
    meaning:
      "A direct connection for LISTEN, where `DATABASE_URL` goes through a transaction pooler. Setting it also keeps named statements off `DATABASE_URL`.",
    secret: true,
  }),
  dataDir: setting(z.string().default(".taisce"), {
    variable: "TAISCE_DATA_DIR",
    shown: "`.taisce`",
    meaning: "Where the embedded PostgreSQL lives.",
  }),
  namespace: setting(
    z.string().regex(NAMESPACE_PATTERN, `must match ${NAMESPACE_PATTERN.source}`).default("taisce"),
    { variable: "TAISCE_NAMESPACE", shown: "`taisce`", meaning: "The schema that holds everything." },
  ),
  role: setting(oneOf(["all", "api", "worker"]).default("all"), {
    variable: "TAISCE_ROLE",
    shown: "`all`",
    meaning:
      "`all`, `api` (routes only) or `worker` (deliveries only; `/health`, `/ready` and `/metrics` only).",
  }),
  host: setting(z.string().default("127.0.0.1"), {
    variable: "TAISCE_HOST",
    shown: "`127.0.0.1`",
    meaning: "The address the API listens on.",
  }),
  port: setting(wholeNumber(0, 65_535).default(8080), {
    variable: "TAISCE_PORT",
    shown: "`8080`",
    meaning: "The port the API listens on; 0 picks a free one and prints it.",
  }),
  destinations: setting(destinations, {
    variable: "TAISCE_NOTIFY_DESTINATIONS",
    shown: "unset",
    meaning:
      "Where a project may send to, comma separated: hosts, as exact names or `.name` for its subdomains; groups to hand off to, as `group:name` or `group:*` for all. Unset or empty: notifications are off.",
  }),
  permitPrivate: setting(permitPrivate, {
    variable: "TAISCE_NOTIFY_PERMIT_PRIVATE",
    shown: "`false`",
    meaning:
      "`true` (any case) lets a destination resolve to an address inside the deployment; any other value is off.",
  }),
  extraCa: setting(caFile.optional(), {
    variable: "TAISCE_NOTIFY_CA_FILE",
    shown: "unset",
    meaning: "PEM certificates trusted besides the system's, for receivers with a private authority.",
  }),
  attempts: setting(wholeNumber(1, 100).default(6), {
    variable: "TAISCE_NOTIFY_ATTEMPTS",
    shown: "`6`",
    meaning: "Attempts in all before a delivery is parked.",
  }),
  backoffMs: setting(duration(1, 3_600_000).default(5_000), {
    variable: "TAISCE_NOTIFY_BACKOFF",
    shown: "`5s`",
    meaning: "The first wait between attempts; it doubles each time.",
  }),
  timeoutMs: setting(duration(10, 20_000).default(5_000), {
    variable: "TAISCE_NOTIFY_TIMEOUT",
    shown: "`5s`",
    meaning: "One attempt, DNS to status line, in all. At most 20s: a claim's lease must outlive it.",
  }),
  concurrency: setting(wholeNumber(1, 10_000).default(64), {
    variable: "TAISCE_NOTIFY_CONCURRENCY",
    shown: "`64`",
    meaning: "Attempts under way at once in one process.",
  }),
  endpointConcurrency: setting(wholeNumber(1, 1_000).default(4), {
    variable: "TAISCE_NOTIFY_ENDPOINT_CONCURRENCY",
    shown: "`4`",
    meaning: "Attempts under way at once to one endpoint in one process.",
  }),
  listen: setting(
    oneOf(["on", "off"])
      .default("on")
      .transform((word) => word === "on"),
    {
      variable: "TAISCE_NOTIFY_LISTEN",
      shown: "`on`",
      meaning: "`off`: no LISTEN, and no trigger is installed; watermarks are polled every second.",
    },
  ),
  channel: setting(channel.optional(), {
    variable: "TAISCE_NOTIFY_CHANNEL",
    shown: "`<namespace>_formed`",
    meaning:
      "The NOTIFY channel, at most 63 bytes. Every process and `migrate` on one namespace must agree on it.",
  }),
  reconcileMs: setting(duration(100, 3_600_000).default(15_000), {
    variable: "TAISCE_NOTIFY_RECONCILE",
    shown: "`15s`",
    meaning: "How often watermarks are compared with what was owed, while listening; every second while not.",
  }),
  coalesceMs: setting(duration(0, 60_000).default(0), {
    variable: "TAISCE_NOTIFY_COALESCE",
    shown: "`0ms`",
    meaning: "How long signals of one project are gathered before the newest is owed.",
  }),
  retentionMs: setting(duration(1_000, 3_650 * DAY).default(30 * DAY), {
    variable: "TAISCE_NOTIFY_RETENTION",
    shown: "`30d`",
    meaning: "How long ended deliveries are kept.",
  }),
  ledgerNotifications: setting(
    oneOf(["on", "off"])
      .default("on")
      .transform((word) => word === "on"),
    {
      variable: "TAISCE_LEDGER_NOTIFICATIONS",
      shown: "`on`",
      meaning:
        "`off`: notifications are not entered in the ledger, which then holds `deliver`'s sends and handoffs only.",
    },
  ),
  pool: setting(wholeNumber(1, 1_000).default(10), {
    variable: "TAISCE_POOL",
    shown: "`10`",
    meaning:
      "Connections in the pool, shared half and half between the API and deliveries where one process does both; the listener's own session comes on top.",
  }),
  rateLimit: setting(wholeNumber(1, 1_000_000).default(1_000), {
    variable: "TAISCE_RATE_LIMIT",
    shown: "`1000`",
    meaning:
      "Requests a second that one credential may make to one process, with bursts of twice as many; a fiftieth as many refused tokens from one address.",
  }),
  logLevel: setting(oneOf(["trace", "debug", "info", "warn", "error", "silent"]).default("info"), {
    variable: "TAISCE_LOG_LEVEL",
    shown: "`info`",
    meaning:
      "`trace`, `debug`, `info`, `warn`, `error` or `silent`. JSON lines on stderr; pretty when stderr is a terminal.",
  }),
});

/** The checked settings. Durations are milliseconds; `channel` is always set. */
export type Settings = Omit<z.output<typeof settingsSchema>, "channel" | "destinations"> & {
  channel: string;
  /** The hosts among the destinations. */
  destinations: Destinations;
  /** The groups among them. */
  groups: PermittedGroups;
};

type SettingName = keyof typeof settingsSchema.shape;

/** Every setting's documentation, in the order it is declared. */
export function settingMetas(): { name: SettingName; meta: SettingMeta }[] {
  return (Object.keys(settingsSchema.shape) as SettingName[]).map((name) => {
    const meta = settingsSchema.shape[name].meta() as SettingMeta | undefined;
    if (meta === undefined) throw new Error(`setting ${name} has no documentation`);
    return { name, meta };
  });
}

/** Thrown with every bad setting in one message; never holds the value of a secret one. */
export class SettingsError extends Error {
  override readonly name = "SettingsError";
}

/**
 * Reads and checks the settings. An empty variable counts as unset.
 *
 * @throws SettingsError naming every bad variable, what was given and what to write instead.
 */
export function readSettings(environment: NodeJS.ProcessEnv): Settings {
  const raw: Partial<Record<SettingName, string>> = {};
  const metaOf = new Map<PropertyKey, SettingMeta>();
  for (const { name, meta } of settingMetas()) {
    metaOf.set(name, meta);
    const text = environment[meta.variable];
    if (text !== undefined && text.trim() !== "") raw[name] = text;
  }
  const result = settingsSchema.safeParse(raw);
  if (!result.success) {
    const lines = result.error.issues.map((issue) => {
      const name = issue.path[0] as SettingName;
      const meta = metaOf.get(name);
      const given = meta?.secret === true ? "" : ` (it is ${JSON.stringify(raw[name])})`;
      return `${meta?.variable ?? String(name)} ${issue.message}${given}`;
    });
    throw new SettingsError(`these settings cannot be used: ${lines.join("; ")}`);
  }
  const { data } = result;
  return { ...data, ...data.destinations, channel: data.channel ?? `${data.namespace}_formed` };
}

/** Variables that look like settings of this service but are none, most likely misspelt. */
export function unknownVariables(environment: NodeJS.ProcessEnv): string[] {
  const known = new Set(settingMetas().map(({ meta }) => meta.variable));
  return Object.keys(environment).filter((name) => name.startsWith("TAISCE_") && !known.has(name));
}
