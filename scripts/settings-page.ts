// docs/settings.md, made from the settings schema. `npm run docs` writes it; a test holds it current.
import { writeFileSync } from "node:fs";
import { settingMetas } from "../src/settings/settings.ts";

export const SETTINGS_PAGE = new URL("../docs/settings.md", import.meta.url);

/** The page's text. */
export function settingsPage(): string {
  const rows = settingMetas().map(({ meta }) => `| \`${meta.variable}\` | ${meta.shown} | ${meta.meaning} |`);
  return `# Settings

Environment variables, all checked when the service starts. A bad one stops it with one message that
names every bad variable and what to write instead; the value of a connection string is never shown. An
empty variable counts as unset. Durations are written \`500ms\`, \`5s\`, \`2m\`, \`12h\`, \`30d\`. A variable
that starts with \`TAISCE_\` and is not listed here is ignored with a warning.

| variable | default | meaning |
|---|---|---|
${rows.join("\n")}

This table is made from \`src/settings/settings.ts\` by \`npm run docs\`.
`;
}

if (import.meta.main) {
  writeFileSync(SETTINGS_PAGE, settingsPage());
  console.log("wrote docs/settings.md");
}
