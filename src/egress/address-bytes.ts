/** IP addresses as bytes: what they mean, whatever text form they came in. */
import { isIPv4, isIPv6 } from "node:net";

/**
 * The 4 or 16 bytes of an IP address; undefined for anything that is not one by Node's strict reading
 * (no leading zeros, no short or hexadecimal IPv4, no brackets). A zone (`fe80::1%eth0`) is left out.
 */
export function bytesOfAddress(address: string): Uint8Array | undefined {
  if (isIPv4(address)) return bytesOfIPv4(address);
  if (isIPv6(address)) return bytesOfIPv6(address);
  return undefined;
}

/** Digit by digit: this runs for every attempt, and `split` with `Number` costs three times as much. */
function bytesOfIPv4(address: string): Uint8Array {
  const bytes = new Uint8Array(4);
  let at = 0;
  for (let i = 0; i < address.length; i++) {
    const digit = address.charCodeAt(i) - 48;
    if (digit < 0) at += 1;
    else bytes[at] = (bytes[at] ?? 0) * 10 + digit;
  }
  return bytes;
}

function bytesOfIPv6(address: string): Uint8Array {
  const [withoutZone = ""] = address.split("%");
  const [left = "", right] = withoutZone.split("::");
  const bytes = new Uint8Array(16);
  const head = bytesOfGroups(left);
  bytes.set(head, 0);
  if (right !== undefined) {
    const tail = bytesOfGroups(right);
    bytes.set(tail, 16 - tail.length);
  }
  return bytes;
}

function bytesOfGroups(groups: string): number[] {
  if (groups === "") return [];
  return groups.split(":").flatMap((group) => {
    if (group.includes(".")) return group.split(".").map(Number);
    const value = Number.parseInt(group, 16);
    return [value >> 8, value & 0xff];
  });
}

/**
 * One string for one address, whatever its text form: for comparing by value. Undefined where it is no
 * address, or has a zone, since that names more than the address.
 */
export function addressKey(address: string): string | undefined {
  const bytes = address.includes("%") ? undefined : bytesOfAddress(address);
  return bytes === undefined ? undefined : Buffer.from(bytes).toString("hex");
}
