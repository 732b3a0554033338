/**
 * Opens one TLS connection, and only to an address that is permitted: the address is judged where it comes
 * from (a literal, or the resolver's answer) and once more on the connected socket, before TLS says a word.
 */
import { X509Certificate } from "node:crypto";
import { isIP, type LookupFunction, type TcpNetConnectOpts } from "node:net";
import {
  type ConnectionOptions,
  connect,
  type PeerCertificate,
  type SecureContext,
  type TLSSocket,
} from "node:tls";
import { EgressError, EgressRefusal } from "./failure.ts";
import type { Resolver } from "./resolver.ts";

export interface ConnectorOptions {
  /** The one that the check before the send uses too, so both see the same answer. */
  readonly resolver: Resolver;
  readonly permitsHost: (hostname: string) => boolean;
  readonly permitsAddress: (address: string) => boolean;
  readonly trust: SecureContext;
}

/** Where to connect; the part of what undici hands to a connector that counts here. */
export interface ConnectTarget {
  /** An IPv6 address comes without brackets. */
  readonly hostname: string;
  /** Empty for the default. */
  readonly port: string;
}

export type ConnectCallback = (
  ...result: [error: null, socket: TLSSocket] | [error: Error, socket: null]
) => void;

/** Returns the socket while it connects, so that a deadline can destroy it; undefined where nothing is dialled. */
export type Connector = (target: ConnectTarget, done: ConnectCallback) => TLSSocket | undefined;

/** `tls.connect` hands these on to `net.connect`; its type does not say so. */
type HappyEyeballs = Pick<TcpNetConnectOpts, "autoSelectFamily" | "autoSelectFamilyAttemptTimeout">;

/** Before the next address of a name is tried beside this one, in milliseconds; Node's 250 is short for a slow link. */
const ADDRESS_ATTEMPT_MS = 1_000;

/**
 * Failure policy: fail closed — whatever cannot be judged (no peer address, an empty answer) is not sent to.
 *
 * The rules kept here and not left to defaults that the environment or a library's next version moves:
 * the certificate is checked whatever NODE_TLS_REJECT_UNAUTHORIZED says; no TLS session is ever resumed,
 * since a resumed one skips the name check; HTTP/2, which may send a request again, is not offered.
 * There is no time limit here: the attempt's own one ends the socket that this returns.
 */
export function createConnector({ resolver, permitsHost, trust, ...options }: ConnectorOptions): Connector {
  const permitsAddress = total(options.permitsAddress);

  return ({ hostname, port }, done) => {
    const literal = isIP(hostname) !== 0;
    // A literal never reaches a `lookup`.
    const refused = !permitsHost(hostname)
      ? new EgressRefusal("destination not permitted", "the host is not permitted")
      : literal && !permitsAddress(hostname)
        ? new EgressRefusal("address not permitted", "the address is not permitted")
        : undefined;
    if (refused !== undefined) {
      process.nextTick(done, refused, null);
      return undefined;
    }

    const closed = new AbortController();
    const settings: ConnectionOptions & HappyEyeballs = {
      host: hostname,
      port: port === "" ? 443 : Number(port),
      ...(literal ? { checkServerIdentity: checkCertificateAddress } : { servername: hostname }),
      lookup: guardedLookup(resolver, permitsAddress, closed.signal),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
      secureContext: trust,
      rejectUnauthorized: true,
      ALPNProtocols: ["http/1.1"],
    };
    const socket = connect(settings);
    socket.setNoDelay(true);
    socket.once("close", () => closed.abort());
    // First in line, so it runs before the listener with which Node starts the handshake.
    socket.prependOnceListener("connect", () => checkPeer(socket, permitsAddress));

    let pending: ConnectCallback | undefined = done;
    socket.once("secureConnect", () => {
      pending?.(null, socket);
      pending = undefined;
    });
    // Stays on for the socket's life: an error between two owners must not become an uncaught one.
    socket.on("error", (error) => {
      pending?.(error, null);
      pending = undefined;
    });
    return socket;
  };
}

/** Failure policy: fail closed — an address that cannot be judged is not permitted. */
function total(permitsAddress: (address: string) => boolean): (address: string) => boolean {
  return (address) => {
    try {
      return permitsAddress(address);
    } catch {
      return false;
    }
  };
}

/** Answers from the resolver if every address of the name is permitted: one that is not makes the name suspect. */
function guardedLookup(
  resolver: Resolver,
  permitsAddress: (address: string) => boolean,
  closed: AbortSignal,
): LookupFunction {
  return (hostname, { all }, done) => {
    // By nextTick, so that what a callback throws is not swallowed by the promise.
    resolver.resolve(hostname, closed).then(
      (addresses) => {
        const [first] = addresses;
        if (first === undefined || !addresses.every(({ address }) => permitsAddress(address))) {
          process.nextTick(
            done,
            new EgressRefusal("address not permitted", "the address is not permitted"),
            [],
          );
        } else if (all) process.nextTick(done, null, [...addresses]);
        else process.nextTick(done, null, first.address, first.family);
      },
      (error: unknown) => process.nextTick(done, error as NodeJS.ErrnoException, []),
    );
  };
}

/**
 * OpenSSL's own comparison: Node 22.23's finds no IPv6 address in any certificate.
 *
 * Failure policy: fail closed — a certificate that cannot be read is for no address.
 */
function checkCertificateAddress(address: string, certificate: PeerCertificate): Error | undefined {
  try {
    if (new X509Certificate(certificate.raw).checkIP(address) !== undefined) return undefined;
  } catch {}
  const error = new Error("the certificate is not for this address");
  return Object.assign(error, { code: "ERR_TLS_CERT_ALTNAME_INVALID" });
}

/** The last check: who is really at the other end. A peer that is gone already has no address: a network error. */
function checkPeer(socket: TLSSocket, permitsAddress: (address: string) => boolean): void {
  const peer = socket.remoteAddress;
  if (peer === undefined) socket.destroy(new EgressError("EGRESS_PEER_UNKNOWN", "the peer has no address"));
  else if (!permitsAddress(peer)) {
    socket.destroy(new EgressRefusal("address not permitted", "the address is not permitted"));
  }
}
