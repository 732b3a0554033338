/**
 * A destination's URL: judged as it was written, before the URL parser repairs it into something else, and
 * then put into the one spelling that is stored.
 */
import { isIP, isIPv4 } from "node:net";
import { EgressRefusal } from "./failure.ts";
import { hostNameProblem, withoutTrailingDot } from "./host-name.ts";

export interface DestinationUrl {
  /** What to store: ASCII lower-case host without a trailing dot, no fragment, no default port. */
  readonly href: string;
  /** Scheme, host and port, an IPv6 address in its brackets. */
  readonly origin: string;
  /** The host alone, an IPv6 address without brackets. */
  readonly hostname: string;
  /** Path and query, as they go on the request line. */
  readonly path: string;
}

/** Bytes of the longest `href`; the database refuses longer ones. */
export const MAX_HREF_BYTES = 2048;
/** What is written may be longer than what is stored (an IDN, a fragment), but not without end. */
const MAX_WRITTEN_LENGTH = 4 * MAX_HREF_BYTES;

/**
 * Parses a destination, or refuses it. Every port from 1 is allowed; whether the host is permitted is the
 * allow-list's to say.
 *
 * Failure policy: fail closed — the WHATWG parser drops, moves and rewrites characters (tabs, backslashes,
 * an empty user, `0x7f.1`), so what two readers could take for two hosts is refused, not repaired.
 *
 * @throws EgressRefusal with the category "destination not permitted"
 */
export function parseDestinationUrl(raw: string): DestinationUrl {
  const writtenHost = judgeWritten(raw);
  const url = parsed(raw);
  if (url.protocol !== "https:" || url.username !== "" || url.password !== "") {
    throw refusal("the URL must begin with https:// and carry no credentials");
  }
  if (url.port === "0") throw refusal("port 0 cannot be sent to");

  const hostname = hostnameOf(url, writtenHost);
  const authority = hostname.includes(":") ? `[${hostname}]` : hostname;
  const origin = `https://${authority}${url.port === "" ? "" : `:${url.port}`}`;
  const path = url.pathname + url.search;
  const href = origin + path;
  if (Buffer.byteLength(href) > MAX_HREF_BYTES)
    throw refusal(`the URL is longer than ${MAX_HREF_BYTES} bytes`);
  return { href, origin, hostname, path };
}

/** Checks the text itself and returns its host as written, without the port. */
function judgeWritten(raw: string): string {
  if (raw.length > MAX_WRITTEN_LENGTH) throw refusal(`the URL is longer than ${MAX_HREF_BYTES} bytes`);
  if (/[\s\p{Cc}\p{Cf}\\]/u.test(raw) || !raw.isWellFormed()) {
    throw refusal("the URL has a space, a backslash or a control character; write it percent-encoded");
  }
  const [, authority] = /^https:\/\/([^/?#]+)/i.exec(raw) ?? [];
  if (authority === undefined) throw refusal("the URL must begin with https:// and a host");
  if (authority.includes("@")) throw refusal("the URL must carry no credentials");
  return authority.replace(/:\d*$/, "");
}

function parsed(raw: string): URL {
  const url = URL.parse(raw);
  if (url === null) throw refusal("the URL is not valid");
  return url;
}

function hostnameOf(url: URL, writtenHost: string): string {
  const literal = url.hostname.startsWith("[") ? url.hostname.slice(1, -1) : url.hostname;
  if (isIPv4(literal) && writtenHost !== literal) {
    throw refusal("an IPv4 address must be written as four decimal numbers");
  }
  if (isIP(literal) !== 0) return literal;
  const name = withoutTrailingDot(url.hostname);
  const problem = hostNameProblem(name);
  if (problem !== undefined) throw refusal(`the URL's host ${problem}`);
  return name;
}

function refusal(reason: string): EgressRefusal {
  return new EgressRefusal("destination not permitted", reason);
}
