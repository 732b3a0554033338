/** The operator's list of hosts that may be sent to: read once, strictly, at start-up. */
import { isIP, isIPv6 } from "node:net";
import { addressKey } from "./address-bytes.ts";
import { hostNameProblem, toAsciiHostName, withoutTrailingDot } from "./host-name.ts";

/** The hosts that may be sent to. An empty list permits nothing. */
export interface Destinations {
  readonly empty: boolean;
  /** `hostname` as in a parsed URL, an IPv6 address without its brackets. Asks no resolver. */
  permits(hostname: string): boolean;
  /** The entry that permits it, as the list means it; undefined where none does. */
  entryFor(hostname: string): string | undefined;
}

/** The list has entries that mean nothing, or not what they seem to. The message names each of them. */
export class DestinationListError extends Error {
  override readonly name = "DestinationListError";
  /** One sentence an entry. */
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join("; "));
    this.problems = problems;
  }
}

/**
 * Reads a comma-separated list: `hooks.example.com` is that host alone, `.example.com` is its subdomains
 * and not itself, `10.0.0.7` and `[fd00::7]` are those addresses alone in any of their spellings.
 * Spaces around an entry and empty items count for nothing.
 *
 * @throws DestinationListError naming every bad entry: a list that half works is one nobody meant.
 */
export function parseDestinations(text: string | undefined): Destinations {
  const names = new Set<string>();
  const suffixes = new Set<string>();
  const addresses = new Set<string>();
  const problems: string[] = [];

  for (const item of (text ?? "").split(",")) {
    const entry = item.trim();
    if (entry === "") continue;
    const read = readEntry(entry);
    if ("problem" in read) problems.push(`${JSON.stringify(entry)} ${read.problem}`);
    else if ("address" in read) addresses.add(read.address);
    else if ("suffix" in read) suffixes.add(read.suffix);
    else names.add(read.name);
  }
  if (problems.length > 0) throw new DestinationListError(problems);

  function entryFor(hostname: string): string | undefined {
    // What a parsed URL says is already spelled like this, and mostly listed as it stands.
    if (names.has(hostname)) return hostname;
    if (isIP(hostname) !== 0) {
      const key = addressKey(hostname);
      return key !== undefined && addresses.has(key) ? key : undefined;
    }
    const name = toAsciiHostName(hostname);
    if (hostNameProblem(name) !== undefined) return undefined;
    if (names.has(name)) return name;
    for (let dot = name.indexOf("."); dot !== -1; dot = name.indexOf(".", dot + 1)) {
      const suffix = name.slice(dot);
      if (suffixes.has(suffix)) return suffix;
    }
    return undefined;
  }

  return {
    empty: names.size + suffixes.size + addresses.size === 0,
    permits: (hostname) => entryFor(hostname) !== undefined,
    entryFor,
  };
}

type Entry = { name: string } | { suffix: string } | { address: string } | { problem: string };

function readEntry(entry: string): Entry {
  const address = addressKey(unbracketed(entry));
  if (address !== undefined) return { address };
  const problem = writtenProblem(entry);
  if (problem !== undefined) return { problem };

  const subdomains = entry.startsWith(".");
  const written = withoutTrailingDot(subdomains ? entry.slice(1) : entry);
  if (written === "") return { problem: "has no name after its dot" };
  if (written.split(/[.。．｡]/).includes("")) return { problem: "has an empty label" };
  const name = toAsciiHostName(written);
  const nameProblem = hostNameProblem(name);
  if (nameProblem !== undefined) return { problem: nameProblem };
  return subdomains ? { suffix: `.${name}` } : { name };
}

/** What is wrong with an entry as it stands, where it says more than a host. */
function writtenProblem(entry: string): string | undefined {
  if (/[\s\p{Cc}\p{Cf}]/u.test(entry))
    return "has a space or control character inside; separate entries by commas";
  if (entry.includes("*")) return 'has a wildcard; write ".example.com" for the subdomains of example.com';
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(entry)) return "has a scheme; give the host alone";
  if (entry.includes("@")) return "has credentials; give the host alone";
  if (/\/\d+$/.test(entry)) return "is a range of addresses; list addresses one by one";
  if (/[/\\?#]/.test(entry)) return "has a path; give the host alone";
  if (isIP(entry) !== 0) return "has a zone; give the address alone";
  if (entry.includes(":")) return "has a port; give the host alone, every port of it is permitted";
  if (entry.includes("%")) return "is not a host name";
  return undefined;
}

function unbracketed(entry: string): string {
  const inside = entry.startsWith("[") && entry.endsWith("]") ? entry.slice(1, -1) : "";
  return isIPv6(inside) ? inside : entry;
}
