// Which texts are a destination, and how each is stored. Most refused ones are texts that `new URL()` would
// have repaired into something that another reader takes for another host.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EgressRefusal, MAX_HREF_BYTES, parseDestinationUrl } from "../../../src/egress/index.ts";

const accepted: [why: string, raw: string, href: string, hostname: string, path: string][] = [
  ["plain", "https://hooks.example.com/in", "https://hooks.example.com/in", "hooks.example.com", "/in"],
  ["no path", "https://hooks.example.com", "https://hooks.example.com/", "hooks.example.com", "/"],
  ["upper case", "HTTPS://HOOKS.EXAMPLE.COM/In", "https://hooks.example.com/In", "hooks.example.com", "/In"],
  ["trailing dot", "https://hooks.example.com./", "https://hooks.example.com/", "hooks.example.com", "/"],
  [
    "trailing dot and port",
    "https://hooks.example.com.:8443/",
    "https://hooks.example.com:8443/",
    "hooks.example.com",
    "/",
  ],
  ["default port", "https://hooks.example.com:443/", "https://hooks.example.com/", "hooks.example.com", "/"],
  [
    "port of zeros and 443",
    "https://hooks.example.com:00443/",
    "https://hooks.example.com/",
    "hooks.example.com",
    "/",
  ],
  ["empty port", "https://hooks.example.com:/", "https://hooks.example.com/", "hooks.example.com", "/"],
  ["port 1", "https://hooks.example.com:1/", "https://hooks.example.com:1/", "hooks.example.com", "/"],
  [
    "port 65535",
    "https://hooks.example.com:65535/",
    "https://hooks.example.com:65535/",
    "hooks.example.com",
    "/",
  ],
  ["fragment", "https://hooks.example.com/a#b", "https://hooks.example.com/a", "hooks.example.com", "/a"],
  [
    "query",
    "https://hooks.example.com/a?b=c&d=%20",
    "https://hooks.example.com/a?b=c&d=%20",
    "hooks.example.com",
    "/a?b=c&d=%20",
  ],
  [
    "@ in the path",
    "https://hooks.example.com/@me?to=a@b",
    "https://hooks.example.com/@me?to=a@b",
    "hooks.example.com",
    "/@me?to=a@b",
  ],
  [
    "percent-encoded letter",
    "https://hook%73.example.com/",
    "https://hooks.example.com/",
    "hooks.example.com",
    "/",
  ],
  [
    "dot segments",
    "https://hooks.example.com/a/../b",
    "https://hooks.example.com/b",
    "hooks.example.com",
    "/b",
  ],
  [
    "double slash path",
    "https://hooks.example.com//x",
    "https://hooks.example.com//x",
    "hooks.example.com",
    "//x",
  ],
  ["IDN, no transitional mapping", "https://faß.de/", "https://xn--fa-hia.de/", "xn--fa-hia.de", "/"],
  [
    "ideographic dots",
    "https://hooks。example。com/",
    "https://hooks.example.com/",
    "hooks.example.com",
    "/",
  ],
  ["underscore", "https://a_b.example.com/", "https://a_b.example.com/", "a_b.example.com", "/"],
  [
    "non-ASCII path",
    "https://hooks.example.com/é",
    "https://hooks.example.com/%C3%A9",
    "hooks.example.com",
    "/%C3%A9",
  ],
  ["IPv4", "https://192.0.2.1:8443/x", "https://192.0.2.1:8443/x", "192.0.2.1", "/x"],
  ["IPv6", "https://[2001:DB8:0:0::1]:8443/x", "https://[2001:db8::1]:8443/x", "2001:db8::1", "/x"],
  ["IPv4-mapped", "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "::ffff:7f00:1", "/"],
  ["single label", "https://receiver/", "https://receiver/", "receiver", "/"],
];

const refused: [why: string, raw: string][] = [
  ["http", "http://hooks.example.com/"],
  ["wss", "wss://hooks.example.com/"],
  ["file", "file:///etc/passwd"],
  ["data", "data:,x"],
  ["javascript", "javascript:alert(1)"],
  ["blob", "blob:https://hooks.example.com/x"],
  ["no scheme", "//hooks.example.com/"],
  ["bare host", "hooks.example.com"],
  ["empty", ""],
  ["one slash", "https:/hooks.example.com/"],
  ["no slash", "https:hooks.example.com/"],
  ["three slashes: host from the path", "https:///x"],
  ["no host", "https://"],
  ["port only", "https://:443/"],
  ["user and password", "https://u:p@hooks.example.com/"],
  ["user", "https://u@hooks.example.com/"],
  ["password", "https://:p@hooks.example.com/"],
  ["empty user, which the parser drops", "https://@hooks.example.com/"],
  ["empty user and password", "https://:@hooks.example.com/"],
  ["another host behind @", "https://hooks.example.com@evil.test/"],
  ["another host behind a port and @", "https://hooks.example.com:443@evil.test/"],
  ["encoded slash before @", "https://hooks.example.com%2f@evil.test/"],
  ["backslash, host evil", "https://evil.test\\@hooks.example.com/"],
  ["backslash, host ours", "https://hooks.example.com\\@evil.test/"],
  ["backslash in the path", "https://hooks.example.com/a\\b"],
  ["backslash for the slashes", "https:\\\\hooks.example.com/"],
  ["encoded @ in the host", "https://hooks.example.com%40evil.test/"],
  ["fullwidth @ in the host", "https://hooks.example.com＠evil.test/"],
  ["tab in the scheme", "ht\ttps://hooks.example.com/"],
  ["line feed in the scheme", "ht\ntps://hooks.example.com/"],
  ["tab in the host", "https://hooks.exam\tple.com/"],
  ["carriage return in the path", "https://hooks.example.com/a\r\nb"],
  ["leading space", " https://hooks.example.com/"],
  ["trailing space", "https://hooks.example.com/ "],
  ["trailing NUL", "https://hooks.example.com/\0"],
  ["space in the path", "https://hooks.example.com/a b"],
  ["no-break space", "https://hooks.example.com/\u00a0"],
  ["line separator", "https://hooks.example.com/\u2028"],
  ["soft hyphen in the host", "https://hooks.exam\u00adple.com/"],
  ["right-to-left override", "https://hooks.example.com/\u202etxt"],
  ["lone surrogate", "https://hooks.example.com/\ud800"],
  ["port 0", "https://hooks.example.com:0/"],
  ["port 65536", "https://hooks.example.com:65536/"],
  ["port -1", "https://hooks.example.com:-1/"],
  ["port +443", "https://hooks.example.com:+443/"],
  ["hexadecimal port", "https://hooks.example.com:0x1bb/"],
  ["fullwidth port", "https://hooks.example.com:８４４３/"],
  ["two ports", "https://hooks.example.com:443:443/"],
  ["encoded slash in the host", "https://hooks.example.com%2f.evil.test/"],
  ["encoded hash in the host", "https://hooks.example.com%23.evil.test/"],
  ["encoded NUL in the host", "https://hooks.example.com%00.evil.test/"],
  ["encoded tab in the host", "https://hooks.example.com%09.evil.test/"],
  ["a/s sign", "https://evil.c℁.partner.example/"],
  ["empty Punycode", "https://xn--/"],
  ["broken Punycode", "https://xn--a.example.com/"],
  ["Punycode of plain ASCII", "https://xn--abc-.example.com/"],
  ["empty label", "https://hooks..example.com/"],
  ["leading dot", "https://.example.com/"],
  ["two trailing dots", "https://hooks.example.com../"],
  ["dot alone", "https://./"],
  ["label of 64", `https://${"a".repeat(64)}.example.com/`],
  ["name of 254", `https://${"a.".repeat(126)}bc/`],
  ["host of 70,000", `https://${"a".repeat(70_000)}.example.com/`],
  ["wildcard", "https://*.example.com/"],
  ["sub-delimiters in the host", "https://a!b$c.example.com/"],
  ["hyphen first", "https://-a.example.com/"],
  ["hyphen last", "https://a-.example.com/"],
  ["zone, encoded", "https://[fe80::1%25eth0]/"],
  ["zone", "https://[fe80::1%eth0]/"],
  ["name in brackets", "https://[hooks.example.com]/"],
  ["name behind brackets", "https://[::1].evil.test/"],
  ["IPv6 without brackets", "https://::1/"],
  ["short IPv4", "https://127.1/"],
  ["hexadecimal IPv4", "https://0x7f.1/"],
  ["octal IPv4", "https://0177.0.0.1/"],
  ["IPv4 as one number", "https://2130706433/"],
  ["IPv4 as one octal number", "https://017700000001/"],
  ["IPv4 as one hexadecimal number", "https://0x7f000001/"],
  ["IPv4 with leading zeros", "https://127.000.000.001/"],
  ["IPv4 with a trailing dot", "https://127.0.0.1./"],
  ["IPv4 in fullwidth digits", "https://１２７.0.0.1/"],
  ["IPv4, percent-encoded", "https://%3127.0.0.1/"],
  ["zero", "https://0/"],
  ["five numbers", "https://1.2.3.4.5/"],
  ["number above 255", "https://256.0.0.1/"],
  ["last label a number", "https://example.1/"],
  ["href too long", `https://hooks.example.com/${"a".repeat(MAX_HREF_BYTES - 25)}`],
];

describe("a destination's URL", () => {
  it.each(accepted)("accepts %s: %j", (_why, raw, href, hostname, path) => {
    expect(parseDestinationUrl(raw)).toEqual({
      href,
      origin: href.slice(0, href.length - path.length),
      hostname,
      path,
    });
  });

  it.each(refused)("refuses %s", (_why, raw) => {
    const refusal = refusalOf(raw);
    expect(refusal.category).toBe("destination not permitted");
    expect(refusal.code).toBe("EGRESS_DESTINATION");
  });

  it("refuses no href of the longest length that is stored", () => {
    const longest = `https://hooks.example.com/${"a".repeat(MAX_HREF_BYTES - 26)}`;
    expect(parseDestinationUrl(longest).href).toHaveLength(MAX_HREF_BYTES);
  });

  it("counts what is stored, not what was written", () => {
    const withFragment = `https://hooks.example.com/#${"a".repeat(MAX_HREF_BYTES)}`;
    expect(parseDestinationUrl(withFragment).href).toBe("https://hooks.example.com/");
    expect(refusalOf(`https://hooks.example.com/${"é".repeat(MAX_HREF_BYTES / 2)}`)).toBeInstanceOf(
      EgressRefusal,
    );
  });

  it("reads its own href back as the same destination", () => {
    fc.assert(
      fc.property(
        fc.webUrl({ validSchemes: ["https"], withQueryParameters: true, withFragments: true }),
        (raw) => {
          const first = parseDestinationUrl(raw);
          expect(parseDestinationUrl(first.href)).toEqual(first);
        },
      ),
    );
  });

  it("either refuses a text or agrees with the URL parser about its host, and never throws anything else", () => {
    const pieces = fc.constantFrom(
      "https://", "http://", "hooks.example.com", "evil.test", "127.0.0.1", "[::1]", "@", ":", "/", "\\", "?", "#", ".",
      "%2f", "%40", "\t", " ", "443", "0", "é", "。", "\ud800", "xn--", "-", "*",
    ); // biome-ignore format: a bag of pieces
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 8 }), (parts) => {
        const raw = `https://${parts.join("")}`;
        const destination = attempt(raw);
        if (destination === undefined) return;
        const { hostname } = new URL(raw);
        expect(hostname.replace(/^\[|\]$|\.$/g, "")).toBe(destination.hostname);
        expect(new URL(destination.href).href).toBe(destination.href);
      }),
      { numRuns: 2_000 },
    );
  });
});

function refusalOf(raw: string): EgressRefusal {
  try {
    parseDestinationUrl(raw);
  } catch (error) {
    if (error instanceof EgressRefusal) return error;
    throw error;
  }
  throw new Error(`accepted: ${raw.slice(0, 100)}`);
}

function attempt(raw: string): ReturnType<typeof parseDestinationUrl> | undefined {
  try {
    return parseDestinationUrl(raw);
  } catch (error) {
    if (error instanceof EgressRefusal) return undefined;
    throw error;
  }
}
