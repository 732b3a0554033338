// The allow-list: which hosts an entry stands for, and which entries stop the start.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DestinationListError, parseDestinations, parseDestinationUrl } from "../../../src/egress/index.ts";

const LIST = "hooks.example.com, .partner.example , 10.0.0.7,[fd00::7], ::1, faß.de, .xn--fa-hia.test,";

const permitted: [why: string, host: string][] = [
  ["an exact name", "hooks.example.com"],
  ["in upper case", "HOOKS.example.com"],
  ["with a trailing dot", "hooks.example.com."],
  ["a subdomain", "a.partner.example"],
  ["a subdomain of a subdomain", "a.b.partner.example"],
  ["an IPv4 address", "10.0.0.7"],
  ["an IPv6 address", "fd00::7"],
  ["an IPv6 address written out", "fd00:0:0:0:0:0:0:7"],
  ["an IPv6 address in upper case", "FD00::0007"],
  ["an IPv6 entry without brackets", "::1"],
  ["an IDN", "xn--fa-hia.de"],
  ["an IDN in Unicode", "faß.de"],
  ["a subdomain of an IDN", "a.xn--fa-hia.test"],
];

const notPermitted: [why: string, host: string][] = [
  ["the apex of a suffix", "partner.example"],
  ["a name that ends alike", "evilpartner.example"],
  ["a subdomain of an exact name", "sub.hooks.example.com"],
  ["a longer name", "xhooks.example.com"],
  ["a name that goes on", "hooks.example.com.evil.test"],
  ["a suffix that goes on", "a.partner.example.evil.test"],
  ["the suffix with its dot", ".partner.example"],
  ["a suffix behind an empty label", "..partner.example"],
  ["the transitional reading of an IDN", "fass.de"],
  ["another address", "10.0.0.8"],
  ["an address in another spelling", "10.7"],
  ["the mapped form of a listed address", "::ffff:10.0.0.7"],
  ["an address with a zone", "fd00::7%eth0"],
  ["an address in brackets", "[fd00::7]"],
  ["nothing", ""],
  ["a dot", "."],
  ["a host with a port", "hooks.example.com:443"],
  ["a host with a path", "hooks.example.com/"],
];

const badEntries: [entry: string, problem: RegExp][] = [
  ["*", /wildcard/],
  ["*.partner.example", /wildcard/],
  ["https://hooks.example.com", /scheme/],
  ["https://hooks.example.com/", /scheme/],
  ["hooks.example.com:443", /port/],
  ["hooks.example.com/in", /path/],
  ["hooks.example.com?x", /path/],
  ["hooks.example.com\\x", /path/],
  ["10.0.0.0/8", /range/],
  ["fd00::/8", /range/],
  ["u@hooks.example.com", /credentials/],
  ["u:p@hooks.example.com", /credentials/],
  [".", /no name/],
  ["..", /no name|empty label/],
  ["..example.com", /empty label/],
  ["a..b", /empty label/],
  ["a。。b", /empty label/],
  ["hooks.example.com..", /empty label/],
  ["hooks example.com", /space/],
  ["hooks.example.com;other.example", /not a host name/],
  ["hooks%2eexample.com", /not a host name/],
  ["127.1", /usual form/],
  ["0x7f.1", /usual form/],
  ["2130706433", /usual form/],
  ["１２７.0.0.1", /usual form/],
  ["10.0.0.7.", /usual form/],
  [".10.0.0.7", /usual form/],
  [".7", /usual form|not a host name/],
  ["[10.0.0.7]", /not a host name/],
  ["[::1", /port|not a host name/],
  ["[::1]:443", /port/],
  ["fe80::1%eth0", /zone/],
  ["-a.example", /not a host name/],
  ["xn--a.example", /Punycode|not a host name/],
  [`${"a".repeat(64)}.example`, /63/],
  [`.${"a.".repeat(126)}bc`, /253/],
];

describe("the list of destinations", () => {
  const destinations = parseDestinations(LIST);

  it.each(permitted)("permits %s: %j", (_why, host) => {
    expect(destinations.permits(host)).toBe(true);
  });

  it.each(notPermitted)("does not permit %s: %j", (_why, host) => {
    expect(destinations.permits(host)).toBe(false);
  });

  it.each([undefined, "", " ", ",", " , ,, "])("is empty and permits nothing when given %j", (text) => {
    const empty = parseDestinations(text);
    expect(empty.empty).toBe(true);
    for (const host of ["", ".", "a", "hooks.example.com", "10.0.0.7", "::1"])
      expect(empty.permits(host)).toBe(false);
  });

  it.each(["a.example", ".example", "10.0.0.7"])("is not empty when given %j", (text) => {
    expect(parseDestinations(text).empty).toBe(false);
  });

  it.each(badEntries)("stops at %j", (entry, problem) => {
    expect(() => parseDestinations(`ok.example,${entry}`)).toThrow(DestinationListError);
    expect(() => parseDestinations(entry)).toThrow(problem);
  });

  it("names every bad entry, each with its own fault, and no good one", () => {
    const error = thrownBy(() => parseDestinations("*.a.example, ok.example, b.example:443"));
    expect(error.problems).toHaveLength(2);
    expect(error.message).toMatch(/"\*\.a\.example" has a wildcard.*; "b\.example:443" has a port/);
    expect(error.message).not.toContain("ok.example");
  });

  it("never permits an IP literal by a suffix", () => {
    const suffixes = parseDestinations(".example, .b, .com");
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (address) => {
        expect(suffixes.permits(address)).toBe(false);
      }),
    );
  });

  it("permits under a suffix exactly the names that end in it after a label", () => {
    const label = fc
      .stringMatching(/^[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?$/)
      .filter((text) => !text.startsWith("xn--"));
    fc.assert(
      fc.property(fc.array(label, { maxLength: 4 }), label, (labels, first) => {
        const under = parseDestinations(".partner.example");
        expect(under.permits([...labels, first, "partner", "example"].join("."))).toBe(true);
        expect(under.permits(`${first}partner.example`)).toBe(false);
      }),
    );
  });

  it("answers alike for what a URL says and for what its parser stores", () => {
    for (const url of ["https://HOOKS.example.com./x", "https://[0:0::1]/", "https://FAß.de/"]) {
      expect(destinations.permits(parseDestinationUrl(url).hostname)).toBe(true);
    }
  });
});

function thrownBy(act: () => unknown): DestinationListError {
  try {
    act();
  } catch (error) {
    if (error instanceof DestinationListError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
