// taisce-notify migrate
import { migrate } from "../database/migrate.ts";
import { namespace } from "../database/namespace.ts";
import { APPLICATION_NAME, databaseUrl } from "../service/connection.ts";
import { readSettings } from "../settings/settings.ts";
import type { Command } from "./command.ts";

export const migrateCommand: Command = {
  name: "migrate",
  usage: "",
  summary: "Applies migrations and triggers; safe when several start at once",
  details:
    "With TAISCE_NOTIFY_LISTEN=off the trigger is removed where it was installed, so that writers stop\n" +
    "paying for NOTIFY; every process on the namespace should then run with it off.",
  positionals: { min: 0, max: 0 },
  async run({ environment }) {
    const settings = readSettings(environment);
    const { url, embedded } = await databaseUrl(settings);
    try {
      const result = await migrate({
        url,
        namespace: namespace(settings.namespace),
        channel: settings.channel,
        triggers: settings.listen ? "install" : "remove",
        applicationName: APPLICATION_NAME,
      });
      const lines = [
        ...result.applied.map((name) => `applied ${name}`),
        ...result.removed.map((name) => `removed ${name}`),
      ];
      return {
        document: { namespace: settings.namespace, ...result },
        text: lines.length === 0 ? `schema "${settings.namespace}" is up to date` : lines.join("\n"),
      };
    } finally {
      await embedded?.close();
    }
  },
};
