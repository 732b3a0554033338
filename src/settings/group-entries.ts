// Takes the groups out of TAISCE_NOTIFY_DESTINATIONS: its other entries are hosts, which egress reads.
import { GROUP_NAME_PATTERN, namesGroup, PermittedGroups } from "../ledger/group-name.ts";

export interface SplitDestinations {
  groups: PermittedGroups;
  /** The list without its groups. */
  hosts: string;
  /** One sentence for each entry that means no group. */
  problems: string[];
}

/** Splits a comma-separated list: `group:<name>` is that group alone, `group:*` is every group. */
export function splitGroups(text: string): SplitDestinations {
  const names: string[] = [];
  const hosts: string[] = [];
  const problems: string[] = [];
  for (const item of text.split(",")) {
    const entry = item.trim();
    if (!namesGroup(entry)) {
      hosts.push(item);
      continue;
    }
    const name = entry.slice("group:".length);
    if (entry.startsWith("group:") && (name === "*" || GROUP_NAME_PATTERN.test(name))) names.push(name);
    else {
      problems.push(
        `${JSON.stringify(entry)} names no group; write group:NAME with a name like ${GROUP_NAME_PATTERN.source}, or group:* for all of them`,
      );
    }
  }
  return { groups: new PermittedGroups(names), hosts: hosts.join(","), problems };
}
