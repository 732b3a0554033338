// What a permitted name may resolve to, at registration, before an attempt, and between that and the
// connection: one address that is not permitted refuses the name, and nothing connects to any of them.

import { execFile } from "node:child_process";
import { networkInterfaces } from "node:os";
import { promisify } from "node:util";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createSender, parseDestinations, type SystemLookup } from "../../../src/egress/index.ts";
import { answering, type Listener, listenTcp, receive, sender, status } from "../harness.ts";
import {
  ADDRESS,
  answers,
  DESTINATION,
  expectRefused,
  failure,
  PUBLIC,
  PUBLIC_SIX,
  posted,
  refusing,
} from "./support.ts";

const ACCEPTED = { kind: "accepted", status: 204 };
const OWN_ADDRESS = new URL("./own-address.ts", import.meta.url).pathname;
const LIST = ".test, .nip.io";

/** Refused with the inside not permitted. */
const inside: [what: string, report: string, name: string, addresses: string[]][] = [
  ["public, then inside", "Questarr #385", "a.test", [PUBLIC, "127.0.0.1"]],
  ["inside, then public", "Questarr #385", "a.test", ["127.0.0.1", PUBLIC]],
  ["public, then private", "GitLab url_blocker any?", "a.test", [PUBLIC, "10.0.0.1"]],
  ["IPv6 loopback alone", "CVE-2026-47389", "a.test", ["::1"]],
  ["public IPv4, IPv6 loopback", "CVE-2026-47389", "a.test", [PUBLIC, "::1"]],
  ["metadata within IPv6", "CVE-2026-47389", "a.test", ["::ffff:169.254.169.254"]],
  ["loopback within IPv6", "CVE-2026-35409", "a.test", ["::ffff:127.0.0.1"]],
  ["link-local with a zone", "devtrack #2151", "a.test", ["fe80::1%eth0"]],
  ["an alias of an internal name", "ssrfcheck #4", "www.partner.test", ["10.0.0.1"]],
  ["an address written in the name", "ssrfcheck #4", "127.0.0.1.nip.io", ["127.0.0.1"]],
  ["an address written in the name in hex", "ssrfcheck #4", "7f000001.nip.io", ["127.0.0.1"]],
  ["metadata", "CVE-2020-28168", "a.test", ["169.254.169.254"]],
  ["a cloud's metadata in shared space", "CVE-2026-42175", "a.test", ["100.100.100.200"]],
  ["Azure's agent, public to look at", "AntiSSRF wireserver", "a.test", ["168.63.129.16"]],
  ["unique-local metadata", "AntiSSRF recommendedV1", "a.test", ["fd00:ec2::254"]],
  ["one inside among 64", "GitLab url_blocker any?", "a.test", [...Array(63).fill(PUBLIC), "127.0.0.1"]],
];

/** Refused with the inside permitted. */
const never: [what: string, report: string, addresses: string[]][] = [
  ["unspecified", "node-ip #160", ["0.0.0.0"]],
  ["unspecified in IPv6", "CVE-2026-46348", ["::"]],
  ["unspecified within IPv6", "CVE-2026-47389", ["::ffff:0.0.0.0"]],
  ["loopback and unspecified", "Questarr #385", ["127.0.0.1", "0.0.0.0"]],
  ["multicast", "GHSA-9h3q-32c7-r533", ["224.0.0.1"]],
  ["broadcast", "GitLab MR 82571", ["255.255.255.255"]],
  ["NAT64 of loopback", "GHSA-pph6-vfjv-vpjw", ["64:ff9b::7f00:1"]],
  ["NAT64 of a public address", "romm #3675", ["64:ff9b::5db8:d822"]],
  ["6to4 of loopback", "nuxt og-image #621", ["2002:7f00:1::"]],
  ["ISATAP of a private address", "RFC 5214", ["2606:4700::5efe:a00:1"]],
];

/** Public for the check, and for the connection, a moment later, this. */
const turned: [what: string, report: string, addresses: string[]][] = [
  ["inside", "CVE-2026-27127", ["127.0.0.1"]],
  ["inside, in IPv6", "CVE-2026-27127", ["::1"]],
  ["inside, as IPv4 within IPv6", "CVE-2026-47389", ["::ffff:127.0.0.1"]],
  ["partly inside: the second address", "CVE-2022-3590", [PUBLIC, "127.0.0.1"]],
  ["partly inside: the first address", "CVE-2022-3590", ["127.0.0.1", PUBLIC]],
  ["unspecified", "miniflux #4092", ["0.0.0.0"]],
];

const coded = (code: string) =>
  Object.assign(new Error(`getaddrinfo ${code} a.test`), { code, hostname: "a.test" });
const failing = (code: string) => () => Promise.reject(coded(code));

const unresolved: [what: string, report: string, lookup: SystemLookup][] = [
  ["ENOTFOUND, no such name", "getaddrinfo(3)", failing("ENOTFOUND")],
  ["EAI_AGAIN, no server answers", "getaddrinfo(3)", failing("EAI_AGAIN")],
  ["EAI_FAIL, the server fails", "getaddrinfo(3)", failing("EAI_FAIL")],
  ["ESERVFAIL, the server fails", "c-ares", failing("ESERVFAIL")],
  ["EINVAL, not taken for a name", "nodejs dns.lookup", failing("EINVAL")],
  ["ECONNREFUSED, of the resolver and not the receiver", "c-ares", failing("ECONNREFUSED")],
  ["ETIMEOUT, of the resolver", "c-ares", failing("ETIMEOUT")],
  ["an error that says nothing", "fail closed", () => Promise.reject()],
  ["no address", "fail closed", async () => []],
  [
    "a name in place of an address",
    "nodejs ERR_INVALID_IP_ADDRESS",
    async () => [{ address: "localhost", family: 4 }],
  ],
  [
    "an address of the other family",
    "nodejs ERR_INVALID_IP_ADDRESS",
    async () => [{ address: "::1", family: 4 }],
  ],
  ["an address in short form", "CVE-2024-29415", async () => [{ address: "127.1", family: 4 }]],
  [
    "a family in words",
    "nodejs ERR_INVALID_ADDRESS_FAMILY",
    async () => [{ address: "127.0.0.1", family: "IPv4" as unknown as number }],
  ],
  ["65 addresses", "bounded work", async () => Array(65).fill({ address: "127.0.0.1", family: 4 })],
];

let listener: Listener;
let before = 0;

beforeAll(async () => {
  // Of this host: whatever leads here, by whichever address, is heard.
  listener = await listenTcp(undefined, "::");
});

beforeEach(() => {
  before = listener.connections;
});

describe("a name whose addresses are", () => {
  it.each(inside)("%s (%s) is refused whole: %s", async (_what, _report, name, addresses) => {
    const by = refusing(LIST, false, answers(addresses));
    await expectRefused(by, `https://${name}:${listener.port}/`, ...addresses);
    expect(listener.connections).toBe(before);
  });

  it.each(never)("%s (%s) is refused with the inside permitted", async (_what, _report, addresses) => {
    const by = refusing(LIST, true, answers(addresses));
    await expectRefused(by, `https://a.test:${listener.port}/`, ...addresses);
    expect(listener.connections).toBe(before);
  });

  it("IPv6 alone is taken, and sent to", async () => {
    const by = refusing(LIST, false, answers([PUBLIC_SIX]));
    expect((await by.vet("https://six.test/")).hostname).toBe("six.test");
    const receiver = await receive(answering(status("204 No Content")), { host: "::1", dns: ["six.test"] });
    const local = await sender({ lookup: answers(["::1"]) });
    expect(await posted(local, `https://six.test:${receiver.port}/`)).toEqual(ACCEPTED);
    expect(receiver.requests).toHaveLength(1);
  });
});

describe("a name that has turned", () => {
  it.each(turned)(
    "%s (%s) between check and connection is not connected to",
    async (_what, _report, later) => {
      const lookup = answers([PUBLIC], later);
      const by = refusing(LIST, false, lookup);
      expect(await posted(by, `https://a.test:${listener.port}/`, ...later)).toEqual(ADDRESS);
      expect(lookup.asked).toEqual(["a.test", "a.test"]);
      expect(listener.connections).toBe(before);
    },
  );

  it.each([
    ["inside", ["10.0.0.1"]],
    ["to this host", ["127.0.0.1"]],
    ["partly inside", [PUBLIC, "127.0.0.1"]],
  ])("%s since registration is refused (thMenu #575, postal AddressGuard)", async (_what, later) => {
    const lookup = answers([PUBLIC], later);
    const by = refusing(LIST, false, lookup);
    const { href } = await by.vet(`https://a.test:${listener.port}/`);
    expect(await posted(by, href, ...later)).toEqual(DESTINATION);
    expect(lookup.asked).toEqual(["a.test", "a.test"]);
    expect(listener.connections).toBe(before);
  });
});

describe("a name that does not resolve just now", () => {
  it.each(unresolved)(
    "for %s (%s) is tried again later, and may be registered",
    async (_what, _report, lookup) => {
      let asked = 0;
      const counted: SystemLookup = (name) => {
        asked += 1;
        return lookup(name);
      };
      const by = refusing(LIST, true, counted);
      const url = `https://a.test:${listener.port}/`;
      expect(await posted(by, url, "a.test", "localhost")).toEqual(failure("network error"));
      expect(asked).toBe(1);
      expect((await by.vet(url)).href).toBe(url);
      expect(listener.connections).toBe(before);
    },
  );

  it("for the system's own resolver is tried again later", async () => {
    const by = createSender({
      destinations: parseDestinations(".invalid"),
      permitPrivate: false,
      timeoutMs: 10_000,
      userAgent: "taisce-notify/test",
      connectionsPerOrigin: 1,
    });
    expect(await posted(by, "https://no-such-host.invalid/", "invalid")).toEqual(failure("network error"));
    await by.close();
  });
});

describe("a name of this very host", () => {
  const own = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);

  it.each(own)(
    "by its interface's address $address is refused (GitLab, smokescreen)",
    async ({ address }) => {
      const by = refusing(LIST, false, answers([address]));
      await expectRefused(by, `https://a.test:${listener.port}/`, address);
      expect(listener.connections).toBe(before);
    },
  );

  it("by an address of its own that is public to look at is refused, until the inside is permitted", async (context) => {
    // A network of its own, whose loopback has that address; the last post shows that it does lead here.
    const address = "8.8.4.4";
    const namespace = ["--map-root-user", "--net", "sh", "-c"];
    const run = (...args: string[]) =>
      promisify(execFile)("unshare", [...namespace, ...args], { env: { PATH } });
    const { PATH } = process.env;
    const setUp = `ip link set lo up && ip address add ${address}/32 dev lo`;
    const possible = await run(setUp).catch((reason: Error) => reason);
    context.skip(possible instanceof Error, "no network namespace to be had here");
    const { stdout } = await run(`${setUp} && exec "$0" "$1" "$2"`, process.execPath, OWN_ADDRESS, address);
    expect(JSON.parse(stdout)).toEqual({
      vetted: "destination not permitted",
      posted: [DESTINATION, DESTINATION],
      connections: 0,
      permitted: failure("tls failure"),
      connectionsThen: 1,
    });
  });
});
