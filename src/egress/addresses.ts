/**
 * Which addresses may be connected to: every special range with the reason it is special. What no row
 * permits is refused.
 */
import { networkInterfaces } from "node:os";
import { addressKey, bytesOfAddress } from "./address-bytes.ts";

/**
 * `public` may be sent to; `inside` is within the deployment or this host and only an operator's switch
 * permits it; `never` is no place a receiver can be, hands out credentials, or hides another address, and
 * nothing permits it.
 */
export type AddressClass = "public" | "inside" | "never";

/** A range, its class, and why. Within a table the first row that holds the address decides. */
type Range = readonly [cidr: string, verdict: AddressClass, reason: string];

/** IANA IPv4 special-purpose registry, multicast registry, and the clouds' public-looking inside addresses. */
export const IPV4_RANGES: readonly Range[] = [
  ["0.0.0.0/8", "never", "this network; Linux connects 0.0.0.0 to the loopback (RFC 791)"],
  ["10.0.0.0/8", "inside", "private use (RFC 1918)"],
  ["100.100.100.200/32", "never", "Alibaba's metadata, within carrier-grade NAT"],
  ["100.64.0.0/10", "inside", "carrier-grade NAT (RFC 6598)"],
  ["127.0.0.0/8", "inside", "loopback (RFC 1122)"],
  ["168.63.129.16/32", "never", "Azure's host agent, public to look at"],
  ["169.254.169.254/32", "never", "the clouds' metadata: whoever asks gets the machine's credentials"],
  ["169.254.170.2/32", "never", "a container's credentials (ECS)"],
  ["169.254.170.23/32", "never", "a pod's credentials (EKS)"],
  ["169.254.0.0/16", "inside", "link-local (RFC 3927)"],
  ["172.16.0.0/12", "inside", "private use (RFC 1918)"],
  ["192.0.0.0/24", "never", "IETF protocol assignments, DS-Lite, NAT64 discovery (RFC 6890)"],
  ["192.0.2.0/24", "never", "documentation (RFC 5737)"],
  ["192.31.196.0/24", "never", "AS112 (RFC 7535)"],
  ["192.52.193.0/24", "never", "automatic multicast tunnelling (RFC 7450)"],
  ["192.88.99.0/24", "never", "6to4 relays, withdrawn (RFC 7526)"],
  ["192.168.0.0/16", "inside", "private use (RFC 1918)"],
  ["192.175.48.0/24", "never", "AS112 (RFC 7534)"],
  ["198.18.0.0/15", "inside", "benchmarking, in use inside networks (RFC 2544)"],
  ["198.51.100.0/24", "never", "documentation (RFC 5737)"],
  ["203.0.113.0/24", "never", "documentation (RFC 5737)"],
  ["224.0.0.0/4", "never", "multicast (RFC 5771)"],
  ["240.0.0.0/4", "never", "reserved, and the limited broadcast (RFC 1112, RFC 919)"],
  ["0.0.0.0/0", "public", "the rest is unicast"],
];

/**
 * IANA IPv6 special-purpose registry and address space. Only 2000::/3 is given out, so everything outside
 * it that no row makes `inside` is `never`. IPv4-mapped addresses are judged before, as the IPv4 they are.
 */
export const IPV6_RANGES: readonly Range[] = [
  ["::1/128", "inside", "loopback (RFC 4291)"],
  ["::/96", "never", "unspecified, and the IPv4-compatible form (RFC 4291)"],
  ["::ffff:0:0:0/96", "never", "IPv4-translated, SIIT (RFC 2765)"],
  ["64:ff9b::/96", "never", "NAT64, reaches any IPv4 address (RFC 6052)"],
  ["64:ff9b:1::/48", "never", "NAT64 of local use, the IPv4 may sit anywhere (RFC 8215)"],
  ["100::/64", "never", "discard (RFC 6666)"],
  ["100:0:0:1::/64", "never", "dummy prefix (RFC 9780)"],
  ["2001::/23", "never", "IETF protocol assignments: Teredo, ORCHID, benchmarking, AMT, AS112 (RFC 2928)"],
  ["2001:db8::/32", "never", "documentation (RFC 3849)"],
  ["2002::/16", "never", "6to4, the IPv4 is in bits 16 to 47 (RFC 3056)"],
  ["2620:4f:8000::/48", "never", "AS112 (RFC 7534)"],
  ["3ffe::/16", "never", "6bone, returned (RFC 3701)"],
  ["3fff::/20", "never", "documentation (RFC 9637)"],
  ["5f00::/16", "never", "segment routing identifiers (RFC 9602)"],
  ["fd00:ec2::23/128", "never", "a pod's credentials (EKS)"],
  ["fd00:ec2::254/128", "never", "Amazon's metadata"],
  ["fd20:ce::254/128", "never", "Google's metadata"],
  ["fc00::/7", "inside", "unique local (RFC 4193)"],
  ["fe80::/10", "inside", "link-local (RFC 4291)"],
  ["fec0::/10", "inside", "site-local, deprecated (RFC 3879)"],
  ["ff00::/8", "never", "multicast (RFC 4291)"],
  ["2000::/3", "public", "global unicast (RFC 4291)"],
  ["::/0", "never", "not given out"],
];

interface Rule {
  readonly prefix: Uint8Array;
  readonly bits: number;
  readonly verdict: AddressClass;
}

function compiled(ranges: readonly Range[]): readonly Rule[] {
  return ranges.map(([cidr, verdict]) => {
    const slash = cidr.indexOf("/");
    const prefix = bytesOfAddress(cidr.slice(0, slash));
    if (prefix === undefined) throw new TypeError(`not a range: ${cidr}`);
    return { prefix, bits: Number(cidr.slice(slash + 1)), verdict };
  });
}

const IPV4_RULES = compiled(IPV4_RANGES);
const IPV6_RULES = compiled(IPV6_RANGES);

function holds({ prefix, bits }: Rule, address: Uint8Array): boolean {
  const whole = bits >> 3;
  for (let i = 0; i < whole; i++) if (prefix[i] !== address[i]) return false;
  const rest = bits & 7;
  return rest === 0 || (((prefix[whole] ?? 0) ^ (address[whole] ?? 0)) & (0xff00 >> rest) & 0xff) === 0;
}

function classOfBytes(address: Uint8Array): AddressClass {
  if (address.length === 16) {
    if (isIPv4Mapped(address)) return classOfBytes(address.subarray(12));
    if (isIsatap(address)) return "never";
  }
  const rules = address.length === 4 ? IPV4_RULES : IPV6_RULES;
  return rules.find((rule) => holds(rule, address))?.verdict ?? "never";
}

/** ::ffff:0:0/96 goes out as plain IPv4. */
function isIPv4Mapped(address: Uint8Array): boolean {
  return address[10] === 0xff && address[11] === 0xff && address.subarray(0, 10).every((byte) => byte === 0);
}

/** RFC 5214: an interface identifier of 0000:5efe or 0200:5efe carries an IPv4 address, under any prefix. */
function isIsatap(address: Uint8Array): boolean {
  const universalBitAside = (address[8] ?? 0) & 0xfd;
  return universalBitAside === 0 && address[9] === 0 && address[10] === 0x5e && address[11] === 0xfe;
}

/** How long the list of this host's own addresses is used, in milliseconds: reading it costs some 50 µs. */
const OWN_ADDRESSES_LIFETIME_MS = 3_000;

/** The addresses of this host's interfaces, as text; re-read when older than a few seconds. */
export type OwnAddresses = () => Iterable<string>;

const interfaceAddresses: OwnAddresses = () =>
  Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));

/**
 * A classifier that counts what `ownAddresses` lists as inside, be it public to look at: a service that
 * listens on the host's outer interface often trusts the host.
 *
 * Failure policy: fail closed — `ownAddresses` throws where the process has no file descriptor left. The
 * list read before stands then; where none ever was, no address is public.
 */
export function createClassifier(
  ownAddresses: OwnAddresses = interfaceAddresses,
): (address: string) => AddressClass {
  let own: ReadonlySet<string | undefined> | undefined;
  let readAt = 0;

  function readOwn(): void {
    try {
      own = new Set(Array.from(ownAddresses(), addressKey));
    } catch {}
    readAt = performance.now();
  }

  // At once, while there are descriptors: a refusal for want of a list is final to its delivery.
  readOwn();

  return (address) => {
    const bytes = bytesOfAddress(address);
    // A zone picks an interface, which only a link-local address needs; on any other it is there to confuse.
    if (bytes === undefined || (address.includes("%") && !isLinkLocal(bytes))) return "never";
    const verdict = classOfBytes(bytes);
    if (verdict !== "public") return verdict;
    if (own === undefined || performance.now() - readAt > OWN_ADDRESSES_LIFETIME_MS) readOwn();
    return own === undefined || own.has(keyOf(bytes)) ? "inside" : "public";
  };
}

function isLinkLocal(address: Uint8Array): boolean {
  return address[0] === 0xfe && ((address[1] ?? 0) & 0xc0) === 0x80;
}

/** An IPv4-mapped address is this host's if the IPv4 is. */
function keyOf(bytes: Uint8Array): string {
  return Buffer.from(bytes.length === 16 && isIPv4Mapped(bytes) ? bytes.subarray(12) : bytes).toString("hex");
}

/**
 * The class of an IP address in any text form that Node takes for one. Never throws.
 *
 * Failure policy: fail closed — what is no valid address, or stands in no row, is `never`.
 */
export const classify: (address: string) => AddressClass = createClassifier();
