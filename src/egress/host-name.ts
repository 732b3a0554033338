/**
 * The one spelling of a host name that the allow-list and a URL are compared in: ASCII, lower case, no
 * trailing dot, and only what the DNS can carry.
 */
import { domainToASCII, domainToUnicode } from "node:url";

const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
/** RFC 1035: 255 octets on the wire are at most 253 characters of text. */
const NAME_LENGTH = 253;
/** What the URL standard would go on to read as an IPv4 address: a last label of digits, or of 0x and hex digits. */
const NUMERIC_LABEL = /^(?:[0-9]+|0x[0-9a-f]*)$/;

/** What is wrong with a host name that is already ASCII and lower case, or undefined where nothing is. */
export function hostNameProblem(name: string): string | undefined {
  if (name === "") return "is not a host name";
  if (name.length > NAME_LENGTH) return `is longer than ${NAME_LENGTH} characters`;
  const labels = name.split(".");
  if (labels.includes("")) return "has an empty label";
  if (labels.some((label) => label.length > 63)) return "has a label longer than 63 characters";
  if (!labels.every((label) => LABEL.test(label))) return "is not a host name";
  if (NUMERIC_LABEL.test(labels.at(-1) ?? ""))
    return "is neither a host name nor an IP address in its usual form";
  if (!labels.every(isSoundLabel)) return "has a label that is no valid Punycode";
  return undefined;
}

/** Node lets any ASCII label that begins like Punycode pass; one that is must survive the way there and back. */
function isSoundLabel(label: string): boolean {
  if (!label.startsWith("xn--")) return true;
  const decoded = domainToUnicode(label);
  return decoded !== label && domainToASCII(decoded) === label;
}

/** What ends a host inside a URL, or is decoded there: `domainToASCII` would cut or change the name, not refuse it. */
const NOT_IN_A_NAME = /[\s/\\?#@:%]/;

/** The ASCII spelling by the URL standard (IDN without transitional mapping, so "faß" keeps its ß); "" where there is none. */
export function toAsciiHostName(name: string): string {
  return NOT_IN_A_NAME.test(name) ? "" : withoutTrailingDot(domainToASCII(name));
}

/** The DNS root's dot says nothing about which host is meant. */
export function withoutTrailingDot(name: string): string {
  return name.endsWith(".") ? name.slice(0, -1) : name;
}
