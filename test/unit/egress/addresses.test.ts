// The classifier: both sides of every boundary, every way to hide an IPv4 address, and what is no address.

import { networkInterfaces } from "node:os";
import fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { addressKey } from "../../../src/egress/address-bytes.ts";
import {
  type AddressClass,
  createClassifier,
  IPV4_RANGES,
  IPV6_RANGES,
} from "../../../src/egress/addresses.ts";
import { classify } from "../../../src/egress/index.ts";

/** First and last address of a stretch, their class, and what it is. */
type Stretch = readonly [first: string, last: string, verdict: AddressClass, what: string];

/**
 * All of the address space from its first address to its last, cut wherever a range begins or ends: so each
 * range is tested at both ends, and at the addresses just outside.
 */
const SPACE_4: readonly Stretch[] = [
  ["0.0.0.0", "0.255.255.255", "never", "this network"],
  ["1.0.0.0", "9.255.255.255", "public", ""],
  ["10.0.0.0", "10.255.255.255", "inside", "private"],
  ["11.0.0.0", "100.63.255.255", "public", ""],
  ["100.64.0.0", "100.100.100.199", "inside", "carrier-grade NAT"],
  ["100.100.100.200", "100.100.100.200", "never", "metadata"],
  ["100.100.100.201", "100.127.255.255", "inside", "carrier-grade NAT"],
  ["100.128.0.0", "126.255.255.255", "public", ""],
  ["127.0.0.0", "127.255.255.255", "inside", "loopback"],
  ["128.0.0.0", "168.63.129.15", "public", ""],
  ["168.63.129.16", "168.63.129.16", "never", "Azure's host agent"],
  ["168.63.129.17", "169.253.255.255", "public", ""],
  ["169.254.0.0", "169.254.169.253", "inside", "link-local"],
  ["169.254.169.254", "169.254.169.254", "never", "metadata"],
  ["169.254.169.255", "169.254.170.1", "inside", "link-local"],
  ["169.254.170.2", "169.254.170.2", "never", "a container's credentials"],
  ["169.254.170.3", "169.254.170.22", "inside", "link-local"],
  ["169.254.170.23", "169.254.170.23", "never", "a pod's credentials"],
  ["169.254.170.24", "169.254.255.255", "inside", "link-local"],
  ["169.255.0.0", "172.15.255.255", "public", ""],
  ["172.16.0.0", "172.31.255.255", "inside", "private"],
  ["172.32.0.0", "191.255.255.255", "public", ""],
  ["192.0.0.0", "192.0.0.255", "never", "protocol assignments"],
  ["192.0.1.0", "192.0.1.255", "public", ""],
  ["192.0.2.0", "192.0.2.255", "never", "documentation"],
  ["192.0.3.0", "192.31.195.255", "public", ""],
  ["192.31.196.0", "192.31.196.255", "never", "AS112"],
  ["192.31.197.0", "192.52.192.255", "public", ""],
  ["192.52.193.0", "192.52.193.255", "never", "multicast tunnelling"],
  ["192.52.194.0", "192.88.98.255", "public", ""],
  ["192.88.99.0", "192.88.99.255", "never", "6to4 relays"],
  ["192.88.100.0", "192.167.255.255", "public", ""],
  ["192.168.0.0", "192.168.255.255", "inside", "private"],
  ["192.169.0.0", "192.175.47.255", "public", ""],
  ["192.175.48.0", "192.175.48.255", "never", "AS112"],
  ["192.175.49.0", "198.17.255.255", "public", ""],
  ["198.18.0.0", "198.19.255.255", "inside", "benchmarking"],
  ["198.20.0.0", "198.51.99.255", "public", ""],
  ["198.51.100.0", "198.51.100.255", "never", "documentation"],
  ["198.51.101.0", "203.0.112.255", "public", ""],
  ["203.0.113.0", "203.0.113.255", "never", "documentation"],
  ["203.0.114.0", "223.255.255.255", "public", ""],
  ["224.0.0.0", "239.255.255.255", "never", "multicast"],
  ["240.0.0.0", "255.255.255.255", "never", "reserved, broadcast"],
];

const SPACE_6: readonly Stretch[] = [
  ["::", "::", "never", "unspecified"],
  ["::1", "::1", "inside", "loopback"],
  ["::2", "::255.255.255.255", "never", "IPv4-compatible"],
  ["::1:0:0", "::fffe:ffff:ffff", "never", "not given out"],
  ["::ffff:0.0.0.0", "::ffff:255.255.255.255", "never", "IPv4-mapped: as the IPv4 address, here its ends"],
  ["0:0:0:0:1::", "0:0:0:0:fffe:ffff:ffff:ffff", "never", "not given out"],
  ["::ffff:0:0:0", "::ffff:0:255.255.255.255", "never", "IPv4-translated"],
  ["0:0:0:0:ffff:1::", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["64:ff9b::", "64:ff9b::255.255.255.255", "never", "NAT64"],
  ["64:ff9b::1:0:0", "64:ff9b:0:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "never", "NAT64 of local use"],
  ["64:ff9b:2::", "ff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["100::", "100::ffff:ffff:ffff:ffff", "never", "discard"],
  ["100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", "never", "dummy prefix"],
  ["100:0:0:2::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["2000::", "2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "Teredo, ORCHID and their like"],
  ["2001:200::", "2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "never", "documentation"],
  ["2001:db9::", "2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "6to4"],
  ["2003::", "2620:4f:7fff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "never", "AS112"],
  ["2620:4f:8001::", "3ffd:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["3ffe::", "3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "6bone"],
  ["3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "documentation"],
  ["3fff:1000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "public", ""],
  ["4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "segment routing"],
  ["5f01::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["fc00::", "fd00:ec2::22", "inside", "unique local"],
  ["fd00:ec2::23", "fd00:ec2::23", "never", "a pod's credentials"],
  ["fd00:ec2::24", "fd00:ec2::253", "inside", "unique local"],
  ["fd00:ec2::254", "fd00:ec2::254", "never", "metadata"],
  ["fd00:ec2::255", "fd20:ce::253", "inside", "unique local"],
  ["fd20:ce::254", "fd20:ce::254", "never", "metadata"],
  ["fd20:ce::255", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "inside", "unique local"],
  ["fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "not given out"],
  ["fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "inside", "link-local"],
  ["fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "inside", "site-local"],
  ["ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "never", "multicast"],
];

/** Ranges within a longer one that no stretch of its own shows: each with both its ends. */
const WITHIN: readonly Stretch[] = [
  ["2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "never", "Teredo"],
  ["2001:1::1", "2001:1::3", "never", "anycast of the protocols"],
  ["2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "never", "benchmarking"],
  ["2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff", "never", "multicast tunnelling"],
  ["2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff", "never", "AS112"],
  ["2001:10::", "2001:1f:ffff:ffff:ffff:ffff:ffff:ffff", "never", "ORCHID"],
  ["2001:20::", "2001:2f:ffff:ffff:ffff:ffff:ffff:ffff", "never", "ORCHIDv2"],
  ["2001:30::", "2001:3f:ffff:ffff:ffff:ffff:ffff:ffff", "never", "drone identifiers"],
  ["2606:4700::5efe:0:0", "2606:4700::5efe:ffff:ffff", "never", "ISATAP"],
  ["2606:4700::200:5efe:0:0", "2606:4700::200:5efe:ffff:ffff", "never", "ISATAP, universal"],
  ["2606:4700::5efd:ffff:ffff", "2606:4700::5eff:0:0", "public", "just outside ISATAP"],
  ["2606:4700::200:5efd:ffff:ffff", "2606:4700::200:5eff:0:0", "public", "just outside ISATAP, universal"],
  ["2606:4700:0:0:100:5efe:0:1", "2606:4700:0:0:300:5efe:0:1", "public", "a group address bit: no ISATAP"],
];

const inside = [
  "::1", "fc00::", "fd00::1", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe80::", "fe80::1%eth0",
  "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::1", "feef::1", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
  "169.254.1.1", "::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:10.0.0.1", "::ffff:c0a8:101",
]; // biome-ignore format: a bag of addresses

const never = [
  // What hands out credentials.
  "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16", "::ffff:a9fe:a9fe",
  "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
  // Unspecified, IPv4-compatible, IPv4-translated, NAT64 of both kinds, 6to4, Teredo, ISATAP.
  "::", "::2", "::127.0.0.1", "::7f00:1", "::8.8.8.8", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
  "64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::",
  "2002:7f00:1::", "2002:808:808::", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
  "2606:4700::5efe:a00:1", "2606:4700::200:5efe:a00:1", "fe80::5efe:10.0.0.1", "fd00::200:5efe:808:808",
  "::ffff:0.0.0.0", "::ffff:224.0.0.1", "::ffff:255.255.255.255", "::ffff:203.0.113.1",
  // Discard, dummy, segment routing, multicast, and what is not given out.
  "100::1", "100:0:0:1::1", "5f00::1", "ff02::1", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
  "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "4000::", "200::1", "64:ff9b:2::1", "fe00::1",
  "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "0:0:0:0:1::",
  "2606:4700:4700::1111%eth0", "::1%lo",
  // No address.
  "", " ", "localhost", "127.1", "127.0.0.1.", "0177.0.0.1", "0x7f.0.0.1", "127.000.000.001", "2130706433", "1.2.3",
  "256.0.0.1", "[::1]", ":::", "::1::", "1:2:3:4:5:6:7:8:9", "g::1", "8.8.8.8 ", "8.8.8.8\n", "8.8.8.8/32", "8.8.8.8:443",
]; // biome-ignore format: a bag of addresses

const publics = [
  "1.1.1.1", "8.8.8.8", "93.184.216.34", "192.0.1.1", "198.20.0.0", "223.255.255.255", "2001:200::1", "3fff:1000::1",
  "2606:4700:4700::1111", "2a00:1450:4001:80b::200e", "::ffff:8.8.8.8", "::ffff:808:808", "2606:4700::5efd:a00:1",
]; // biome-ignore format: a bag of addresses

describe("the class of an address", () => {
  it.each([...SPACE_4, ...SPACE_6, ...WITHIN])("is decided from %s to %s: %s %s", (first, last, verdict) => {
    expect([classify(first), classify(last)]).toEqual([verdict, verdict]);
  });

  it.each([
    ["IPv4", SPACE_4, IPV4_RANGES, 32],
    ["IPv6", SPACE_6, IPV6_RANGES, 128],
  ] as const)("is tested over all of %s, and at both ends of every range", (_family, space, ranges, bits) => {
    const ends = space.map(([first, last]) => [numberOf(first), numberOf(last)] as const);
    expect(ends.map(([first]) => first)).toEqual([0n, ...ends.slice(0, -1).map(([, last]) => last + 1n)]);
    expect(ends.at(-1)?.[1]).toBe(2n ** BigInt(bits) - 1n);
    for (const [cidr] of ranges) {
      const [address = "", length = ""] = cidr.split("/");
      const first = numberOf(address);
      const last = first + 2n ** BigInt(bits - Number(length)) - 1n;
      expect(
        ends.some((each) => each[0] === first),
        `${cidr} begins a stretch`,
      ).toBe(true);
      expect(
        ends.some((each) => each[1] === last),
        `${cidr} ends one`,
      ).toBe(true);
    }
  });

  it.each(inside)("is inside: %j", (address) => expect(classify(address)).toBe("inside"));
  it.each(never)("is never: %j", (address) => expect(classify(address)).toBe("never"));
  it.each(publics)("is public: %j", (address) => expect(classify(address)).toBe("public"));

  it("has a reason for every range, and a range only once", () => {
    for (const ranges of [IPV4_RANGES, IPV6_RANGES]) {
      expect(ranges.every(([, , reason]) => reason.length > 5)).toBe(true);
      expect(new Set(ranges.map(([cidr]) => cidr)).size).toBe(ranges.length);
    }
  });

  it("is the same for an IPv4 address and its mapped forms", () => {
    fc.assert(
      fc.property(bytes(4), (octets) => {
        const [a = 0, b = 0, c = 0, d = 0] = octets;
        const plain = classify(octets.join("."));
        expect(classify(`::ffff:${octets.join(".")}`)).toBe(plain);
        expect(classify(`::ffff:${hex(a * 256 + b)}:${hex(c * 256 + d)}`)).toBe(plain);
        expect(classify(`0:0:0:0:0:FFFF:${octets.join(".")}`)).toBe(plain);
      }),
    );
  });

  it("is the same for every spelling of an IPv6 address", () => {
    // Few non-zero groups, so that runs of zeros to shorten are common.
    const group = fc.oneof(
      { weight: 2, arbitrary: fc.constant(0) },
      { weight: 1, arbitrary: fc.nat(0xffff) },
    );
    fc.assert(
      fc.property(fc.array(group, { minLength: 8, maxLength: 8 }), (groups) => {
        const full = groups.map((value) => hex(value).padStart(4, "0")).join(":");
        const short = new URL(`https://[${full}]/`).hostname.slice(1, -1);
        const upper = groups.map((value) => hex(value).toUpperCase()).join(":");
        expect(new Set([full, short, upper].map(classify)).size).toBe(1);
      }),
      { numRuns: 1_000 },
    );
  });

  it("is public in IPv6 only in 2000::/3, or as a mapped IPv4 address", () => {
    fc.assert(
      fc.property(bytes(16), (octets) => {
        const address = Array.from({ length: 8 }, (_, i) =>
          hex((octets[2 * i] ?? 0) * 256 + (octets[2 * i + 1] ?? 0)),
        );
        if (classify(address.join(":")) === "public") expect((octets[0] ?? 0) >> 5).toBe(1);
      }),
      { numRuns: 2_000 },
    );
  });

  it("is never for any text that is no address", () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        expect(classify(`x${text}`)).toBe("never");
      }),
    );
  });

  it("counts this host's own addresses as inside, in any form, be they public to look at", () => {
    const own = createClassifier(() => ["8.8.4.4", "2606:4700:4700::1001", "fe80::1%eth0"]);
    expect(own("8.8.4.4")).toBe("inside");
    expect(own("::ffff:8.8.4.4")).toBe("inside");
    expect(own("2606:4700:4700:0:0:0:0:1001")).toBe("inside");
    expect(own("8.8.4.5")).toBe("public");
  });

  it("reads this host's addresses once for many questions", () => {
    let reads = 0;
    const own = createClassifier(() => {
      reads += 1;
      return [];
    });
    for (let i = 0; i < 100; i++) own("8.8.8.8");
    expect(reads).toBe(1);
  });

  it("is inside for every public address while this host's own cannot be read, and never throws", () => {
    let readable = false;
    const own = createClassifier(() => {
      if (!readable) throw Object.assign(new Error("uv_interface_addresses"), { code: "EMFILE" });
      return ["8.8.4.4"];
    });
    expect([own("8.8.8.8"), own("10.0.0.1"), own("0.0.0.0")]).toEqual(["inside", "inside", "never"]);
    readable = true;
    expect([own("8.8.8.8"), own("8.8.4.4")]).toEqual(["public", "inside"]);
  });

  it("goes by the list read before while a newer one cannot be read", () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    const own = createClassifier(() => {
      if (performance.now() >= 10_000) throw new Error("EMFILE");
      return ["8.8.4.4"];
    });
    vi.advanceTimersByTime(10_000);
    expect([own("8.8.8.8"), own("8.8.4.4")]).toEqual(["public", "inside"]);
    vi.useRealTimers();
  });

  it("lets none of this very host's addresses count as public", () => {
    const addresses = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
    for (const { address } of addresses) expect(classify(address)).not.toBe("public");
  });
});

function numberOf(address: string): bigint {
  return BigInt(`0x${addressKey(address)}`);
}

function bytes(length: number): fc.Arbitrary<number[]> {
  return fc.array(fc.nat(255), { minLength: length, maxLength: length });
}

function hex(value: number): string {
  return value.toString(16);
}
