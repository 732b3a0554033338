// What a client may write as a destination and an operator as a list: each text goes through registration and
// through an attempt. What is refused asks no resolver and begins no connection.

import type { TLSSocket } from "node:tls";
import { beforeAll, describe, expect, it } from "vitest";
import { parseDestinations } from "../../../src/egress/index.ts";
import { type Listener, listenTcp, type Receiver, receive, sender, status } from "../harness.ts";
import { answers, expectClean, expectRefused, failure, posted, refusing, watchDials } from "./support.ts";

const ACCEPTED = { kind: "accepted", status: 204 };
const LIST = "hooks.example.com, .partner.example";
const LABEL_63 = "a".repeat(63);
const NAME_253 = `${"a.".repeat(119)}partner.example`;

/** The inside is permitted: the text and the list alone refuse. */
const refused: [what: string, report: string, text: string][] = [
  ["http", "AntiSSRF InDomain.test.ts", "http://hooks.example.com/"],
  ["wss", "AntiSSRF InDomain.test.ts", "wss://hooks.example.com/"],
  ["file", "AntiSSRF InDomain.test.ts", "file:///etc/passwd"],
  ["data", "AntiSSRF InDomain.test.ts", "data:,x"],
  ["javascript", "AntiSSRF InDomain.test.ts", "javascript:x"],
  ["blob of a listed host", "AntiSSRF InDomain.test.ts", "blob:https://hooks.example.com/x"],
  ["no scheme", "AntiSSRF InDomain.test.ts", "//hooks.example.com/"],
  ["bare host", "AntiSSRF InDomain.test.ts", "hooks.example.com"],
  ["nothing", "WHATWG URL 4.4", ""],
  ["user and password", "svix-webhooks, sent as Basic auth", "https://u:p@hooks.example.com/"],
  ["user", "svix-webhooks, sent as Basic auth", "https://u@hooks.example.com/"],
  ["password", "svix-webhooks, sent as Basic auth", "https://:p@hooks.example.com/"],
  ["empty user, dropped by the parser", "WHATWG URL 4.4", "https://@hooks.example.com/"],
  ["empty user and password", "WHATWG URL 4.4", "https://:@hooks.example.com/"],
  ["listed host as user", "GitLab secure coding guide", "https://hooks.example.com@evil.test/"],
  ["listed host and port as user", "GitLab secure coding guide", "https://hooks.example.com:443@evil.test/"],
  ["encoded slash in the user", "GitLab secure coding guide", "https://hooks.example.com%2f@evil.test/"],
  ["backslash, host evil", "Orange Tsai 2017", "https://evil.test\\@hooks.example.com/"],
  ["backslash, host listed", "Orange Tsai 2017", "https://hooks.example.com\\@evil.test/"],
  ["listed host in the fragment", "Orange Tsai 2017", "https://evil.test#@hooks.example.com/"],
  ["listed host in the query", "Orange Tsai 2017", "https://evil.test?@hooks.example.com/"],
  ["host taken from the path", "WHATWG URL 4.4", "https:///x"],
  ["no host", "WHATWG URL 4.4", "https://"],
  ["port without host", "WHATWG URL 4.4", "https://:443/"],
  ["line feed in the scheme", "CVE-2023-24329", "ht\ntps://hooks.example.com/"],
  ["tab in the host", "CVE-2023-24329", "https://hooks.exam\tple.com/"],
  ["carriage return in the host", "CVE-2023-24329", "https://hooks.exam\rple.com/"],
  ["leading space", "CVE-2023-24329", " https://hooks.example.com/"],
  ["trailing space", "CVE-2023-24329", "https://hooks.example.com/ "],
  ["leading NUL", "CVE-2023-24329", "\0https://hooks.example.com/"],
  ["trailing NUL", "CVE-2023-24329", "https://hooks.example.com/\0"],
  ["line break and a header in the path", "CVE-2022-31150", "https://hooks.example.com/a HTTP/1.1\r\nx: y"],
  ["port 0", "connect(2)", "https://hooks.example.com:0/"],
  ["port 65536", "WHATWG URL 4.4", "https://hooks.example.com:65536/"],
  ["port -1", "WHATWG URL 4.4", "https://hooks.example.com:-1/"],
  ["port +443", "WHATWG URL 4.4", "https://hooks.example.com:+443/"],
  ["hexadecimal port", "WHATWG URL 4.4", "https://hooks.example.com:0x1bb/"],
  ["fullwidth port", "WHATWG URL 4.4", "https://hooks.example.com:８４４３/"],
  ["two ports", "WHATWG URL 4.4", "https://hooks.example.com:443:443/"],
  ["encoded slash after a listed host", "WHATWG URL 3.5", "https://hooks.example.com%2f.evil.test/"],
  ["encoded hash after a listed host", "WHATWG URL 3.5", "https://hooks.example.com%23.evil.test/"],
  ["encoded NUL after a listed host", "WHATWG URL 3.5", "https://hooks.example.com%00.evil.test/"],
  ["encoded tab after a listed host", "WHATWG URL 3.5", "https://hooks.example.com%09.evil.test/"],
  ["encoded dot after a listed host", "WHATWG URL 3.5", "https://hooks.example.com%2eevil.test/"],
  ["empty Punycode", "AntiSSRF tests", "https://xn--/"],
  ["sign that turns into a slash", "AntiSSRF tests", "https://evil.c℁.partner.example/"],
  ["label of 64", "RFC 1035 2.3.4", `https://${"a".repeat(64)}.partner.example/`],
  ["name of 254", "GitLab url_blocker_spec", `https://b${NAME_253}/`],
  ["name of 70,000", "GitLab url_blocker_spec", `https://${"a.".repeat(34_991)}partner.example/`],
  ["label of 70,000", "GitLab url_blocker_spec", `https://${"a".repeat(70_000)}.partner.example/`],
  ["zone, encoded", "CVE-2022-29188", "https://[fe80::1%25eth0]/"],
  ["zone", "CVE-2022-29188", "https://[fe80::1%eth0]/"],
  ["name in brackets", "CVE-2022-29188", "https://[hooks.example.com]/"],
  ["name after brackets", "CVE-2022-29188", "https://[::1].evil.test/"],
  ["listed suffix without its dot", "CVE-2026-33393", "https://evilpartner.example/"],
  ["apex of a listed suffix", "AntiSSRF lets it match", "https://partner.example/"],
  ["listed host as prefix", "GHSA-r8j5-8747-88cm", "https://hooks.example.com.evil.test/"],
  ["listed suffix as prefix", "GHSA-r8j5-8747-88cm", "https://a.partner.example.evil.test/"],
  ["listed host as ending", "CVE-2026-33393", "https://xhooks.example.com/"],
  ["below a listed host", "CVE-2026-33393", "https://sub.hooks.example.com/"],
];

/** What is stored is `https://` and the last column, whose host is asked for by Host and in TLS. */
const taken: [what: string, report: string, text: string, dialled: number, stored: string][] = [
  ["plain", "no repair", "https://hooks.example.com/in?a=b", 443, "hooks.example.com/in?a=b"],
  ["upper case", "CVE-2022-24825", "HTTPS://HOOKS.EXAMPLE.COM/In", 443, "hooks.example.com/In"],
  ["trailing dot", "CVE-2022-24825", "https://hooks.example.com./", 443, "hooks.example.com/"],
  ["dot and port", "satori #777", "https://hooks.example.com.:8443/", 8443, "hooks.example.com:8443/"],
  ["empty port", "WHATWG URL 4.4", "https://hooks.example.com:/", 443, "hooks.example.com/"],
  ["default port", "WHATWG URL 4.4", "https://hooks.example.com:443/", 443, "hooks.example.com/"],
  ["port with zeros", "WHATWG URL 4.4", "https://hooks.example.com:00443/", 443, "hooks.example.com/"],
  ["port 1", "every port is allowed", "https://hooks.example.com:1/", 1, "hooks.example.com:1/"],
  ["port 25", "every port is allowed", "https://hooks.example.com:25/", 25, "hooks.example.com:25/"],
  ["port 6379", "every port is allowed", "https://hooks.example.com:6379/", 6379, "hooks.example.com:6379/"],
  [
    "port 65535",
    "every port is allowed",
    "https://a.partner.example:65535/",
    65535,
    "a.partner.example:65535/",
  ],
  ["fragment", "WHATWG URL 4.4", "https://hooks.example.com/a#@evil.test/", 443, "hooks.example.com/a"],
  ["encoded letter", "WHATWG URL 3.5", "https://hook%73.example.com/", 443, "hooks.example.com/"],
  ["ideographic dots", "UTS 46", "https://hooks。example。com/", 443, "hooks.example.com/"],
  ["below a suffix", "AntiSSRF tests", "https://a.partner.example/", 443, "a.partner.example/"],
  ["far below a suffix", "AntiSSRF tests", "https://a.b.partner.example/", 443, "a.b.partner.example/"],
  [
    "label of 63",
    "RFC 1035 2.3.4",
    `https://${LABEL_63}.partner.example/`,
    443,
    `${LABEL_63}.partner.example/`,
  ],
  ["name of 253", "RFC 1035 2.3.4", `https://${NAME_253}/`, 443, `${NAME_253}/`],
];

/** Listed as the address they mean, and refused all the same; with the inside permitted where `never` says so. */
const literals: [host: string, listed: string, report: string, never?: "never"][] = [
  ["127.0.0.1", "127.0.0.1", "CVE-2024-29415"],
  ["127.255.255.254", "127.255.255.254", "CVE-2024-29415"],
  ["10.0.0.1", "10.0.0.1", "RFC 1918"],
  ["172.16.0.1", "172.16.0.1", "RFC 1918"],
  ["192.168.0.1", "192.168.0.1", "RFC 1918"],
  ["0", "0.0.0.0", "node-ip #160", "never"],
  ["0.0.0.0", "0.0.0.0", "GHSA-f4gw-2p7v-4548", "never"],
  ["[::]", "[::]", "CVE-2026-46348", "never"],
  ["[::1]", "[::1]", "CVE-2026-35409"],
  ["[0:0:0:0:0:0:0:1]", "[::1]", "CVE-2026-35409"],
  ["[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]", "CVE-2026-47389"],
  ["[::ffff:7f00:1]", "[::ffff:127.0.0.1]", "CVE-2026-47389"],
  ["[::ffff:a9fe:a9fe]", "[::ffff:169.254.169.254]", "GHSA-j4rj-2jr5-m439", "never"],
  ["[::ffff:0.0.0.0]", "[::ffff:0:0]", "CVE-2026-47389", "never"],
  ["[::127.0.0.1]", "[::127.0.0.1]", "adk-python #6486", "never"],
  ["[::ffff:0:127.0.0.1]", "[::ffff:0:7f00:1]", "adk-python #6486", "never"],
  ["[2606:4700::5efe:a00:1]", "[2606:4700::5efe:a00:1]", "RFC 5214", "never"],
  ["[2606:4700::200:5efe:a00:1]", "[2606:4700::200:5efe:a00:1]", "RFC 5214", "never"],
  ["[64:ff9b::a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "GHSA-pph6-vfjv-vpjw", "never"],
  ["[64:ff9b::a00:1]", "[64:ff9b::a00:1]", "CVE-2026-73087", "never"],
  ["[64:ff9b:1::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]", "RFC 8215", "never"],
  ["[64:ff9b:1:a9fe:a9:fe00::]", "[64:ff9b:1:a9fe:a9:fe00::]", "RFC 6052", "never"],
  ["[2002:7f00:1::]", "[2002:7f00:1::]", "nuxt og-image #621", "never"],
  ["[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "RFC 4380", "never"],
  ["100.64.0.1", "100.64.0.1", "smokescreen #265"],
  ["100.100.100.200", "100.100.100.200", "CVE-2026-42175", "never"],
  ["168.63.129.16", "168.63.129.16", "AntiSSRF wireserver", "never"],
  ["169.254.169.254", "169.254.169.254", "CVE-2020-28168", "never"],
  ["[fd00:ec2::254]", "[fd00:ec2::254]", "AntiSSRF recommendedV1", "never"],
  ["[fd00::1]", "[fd00::1]", "RFC 4193"],
  ["[fe80::1]", "[fe80::1]", "RFC 4291"],
  ["[feef::1]", "[feef::1]", "GitLab url_blocker_spec"],
  ["198.18.0.1", "198.18.0.1", "smokescreen lets it pass"],
  ["192.0.0.1", "192.0.0.1", "smokescreen lets it pass", "never"],
  ["192.88.99.1", "192.88.99.1", "RFC 7526", "never"],
  ["203.0.113.1", "203.0.113.1", "RFC 5737", "never"],
  ["224.0.0.1", "224.0.0.1", "GHSA-9h3q-32c7-r533", "never"],
  ["[ff02::1]", "[ff02::1]", "GHSA-9h3q-32c7-r533", "never"],
  ["240.0.0.1", "240.0.0.1", "smokescreen lets it pass", "never"],
  ["255.255.255.255", "255.255.255.255", "GitLab MR 82571", "never"],
  // Not in their usual form: refused for that alone, the inside permitted or not.
  ["2852039166", "169.254.169.254", "CVE-2025-59436", "never"],
  ["0377.0377.0377.0377", "255.255.255.255", "GitLab MR 82571", "never"],
  ["127.1", "127.0.0.1", "CVE-2024-29415", "never"],
  ["0x7f.1", "127.0.0.1", "CVE-2024-29415", "never"],
  ["0177.0.0.1", "127.0.0.1", "CVE-2024-29415", "never"],
  ["2130706433", "127.0.0.1", "CVE-2025-59436", "never"],
  ["017700000001", "127.0.0.1", "CVE-2025-59436", "never"],
  ["0x7f000001", "127.0.0.1", "CVE-2025-59436", "never"],
  ["127.000.000.001", "127.0.0.1", "CVE-2024-29415", "never"],
  ["127.0.0.1.", "127.0.0.1", "CVE-2024-29415", "never"],
  ["１２７.0.0.1", "127.0.0.1", "CVE-2024-29415", "never"],
];

const entries: [list: string, report: string, host: string, permitted: boolean][] = [
  [" Hooks.Example.COM ", "CVE-2022-24825", "hooks.example.com", true],
  ["hooks.example.com.", "CVE-2022-24825", "hooks.example.com", true],
  ["\tHOOKS.example.com. ,", "CVE-2022-24825", "hooks.example.com.", true],
  [" .Partner.EXAMPLE. ", "CVE-2022-24825", "a.partner.example", true],
  [" .Partner.EXAMPLE. ", "AntiSSRF lets it match", "partner.example", false],
  ["faß.de", "WHATWG URL 3.3", "faß.de", true],
  ["fass.de", "WHATWG URL 3.3", "faß.de", false],
  ["[::1]", "one address, any spelling", "[0:0::1]", true],
  ["::1", "one address, any spelling", "[0:0::1]", true],
  ["0:0:0:0:0:0:0:1", "one address, any spelling", "[::1]", true],
  ["127.0.0.1", "CVE-2026-47389", "[::ffff:127.0.0.1]", false],
  ["", "an empty list permits nothing", "hooks.example.com", false],
  [" , ,", "''.endsWith permits all", "hooks.example.com", false],
  ["", "an empty list permits nothing", "127.0.0.1", false],
];

let listener: Listener;
let receiver: Receiver;
let asked: (string | false | null)[] = [];

beforeAll(async () => {
  // Of this host: whatever leads here, by whichever address, is heard.
  listener = await listenTcp(undefined, "::");
  const answer = (socket: TLSSocket) => {
    asked.push(socket.servername ?? false);
    socket.write(status("204 No Content"));
  };
  const names = taken.map(([, , , , stored]) => hostOf(stored));
  const dns = [...new Set(names), "xn--fa-hia.de"];
  receiver = await receive(answer, { host: "::", dns });
});

/** Refused at registration and by an attempt, with no question asked and nothing begun. */
async function expectNothingOf(text: string, list: string, permitPrivate: boolean): Promise<void> {
  const before = listener.connections;
  const dials = watchDials(listener.port);
  const lookup = answers(["127.0.0.1"]);
  const by = refusing(list, permitPrivate, lookup);
  await expectRefused(by, text, listener.port, "evil", "partner");
  expect(lookup.asked).toEqual([]);
  expect(dials).toEqual([]);
  expect(listener.connections).toBe(before);
}

describe("a text that is no destination, or whose host is not listed,", () => {
  it.each(refused)("is refused: %s (%s)", (_what, _report, text) => expectNothingOf(text, LIST, true));

  it.each([
    ["a header's value", { "x-a": "1\r\nx-b: 2" }],
    ["a header's value, line feed alone", { "x-a": "1\nx-b: 2" }],
    ["a header's name", { "x-a: 1\r\nx-b": "2" }],
  ])(
    "is refused before dialling with a line break in %s (CVE-2022-31150, CVE-2023-23936)",
    async (_what, headers) => {
      const dials = watchDials(listener.port);
      const outcome = await (await sender()).post(`https://127.0.0.1:${listener.port}/`, headers, "{}");
      expectClean(outcome, listener.port, "x-b");
      expect(outcome).toEqual(failure("network error"));
      expect(dials).toEqual([]);
      expect(listener.connections).toBe(0);
    },
  );
});

describe("a text that is a destination", () => {
  it.each(taken)("is sent to: %s (%s)", async (_what, _report, text, port, stored) => {
    const dials = watchDials(receiver.port);
    const lookup = answers(["127.0.0.1"]);
    const by = await sender({ destinations: parseDestinations(LIST), lookup });
    const [host = ""] = stored.split("/");
    const path = stored.slice(host.length);
    const hostname = hostOf(stored);
    expect(await by.vet(text)).toEqual({
      href: `https://${stored}`,
      origin: `https://${host}`,
      hostname,
      path,
    });
    asked = [];
    expect(await posted(by, text)).toEqual(ACCEPTED);
    expect(dials).toEqual([`${hostname} ${port}`]);
    expect(lookup.asked).toEqual([hostname]);
    expect(asked).toEqual([hostname]);
    const [line, hostLine] = receiver.requests.at(-1)?.split("\r\n") ?? [];
    expect([line, hostLine]).toEqual([`POST ${path} HTTP/1.1`, `host: ${host}`]);
  });
});

describe("an address that is listed", () => {
  it.each(literals)("as a URL's host %s, by the entry %s, is refused (%s)", (host, listed) =>
    expectNothingOf(`https://${host}/`, `${LIST}, ${listed}`, false),
  );

  const never = literals.filter(([, , , verdict]) => verdict === "never");
  it.each(never)("as %s, by the entry %s, is refused with the inside permitted (%s)", (host, listed) =>
    expectNothingOf(`https://${host}/`, `${LIST}, ${listed}`, true),
  );

  it.each([
    ["127.0.0.1", ACCEPTED],
    ["[::1]", ACCEPTED],
    // Reached, and then told by its certificate that it is not the one asked for.
    ["127.0.0.9", failure("tls failure")],
  ])("as %s is sent to with the inside permitted", async (host, outcome) => {
    const dials = watchDials(receiver.port);
    const by = await sender({ destinations: parseDestinations(host), permitPrivate: true });
    await by.vet(`https://${host}/`);
    expect(await posted(by, `https://${host}/`)).toEqual(outcome);
    expect(dials).toHaveLength(1);
  });

  it.each(["10.0.0.1", "192.168.0.1", "169.254.1.1", "100.64.0.1", "[fd00::1]"])(
    "as %s is let through with the inside permitted",
    async (host) => {
      const dials = watchDials(listener.port);
      const by = refusing(host, true, answers());
      expect((await by.vet(`https://${host}/`)).origin).toBe(`https://${host}`);
      // What watches ends the connection where it would have begun.
      expect(await posted(by, `https://${host}/`)).toEqual(failure("network error"));
      expect(dials).toEqual([`${host.replace(/[[\]]/g, "")} 443`]);
    },
  );
});

describe("an address that is not listed", () => {
  it.each(literals)("as a URL's host %s is refused, be the inside permitted", (host) =>
    expectNothingOf(`https://${host}/`, LIST, true),
  );
});

describe("a list", () => {
  it.each(entries)("of %j (%s), for %s, permits: %s", async (list, _report, host, permitted) => {
    if (!permitted) return expectNothingOf(`https://${host}/`, list, true);
    watchDials(receiver.port);
    const by = await sender({ destinations: parseDestinations(list), permitPrivate: true });
    await by.vet(`https://${host}/`);
    expect(await posted(by, `https://${host}/`)).toEqual(ACCEPTED);
  });
});

function hostOf(stored: string): string {
  return stored.replace(/[:/].*/, "");
}
