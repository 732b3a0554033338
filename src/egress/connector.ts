/**
 * Opens one TLS connection, and only to an address that is permitted: the address is judged where it comes
 * from (a literal, or the resolver's answer) and once more on the connected socket, before TLS is there at all.
 */
import { X509Certificate } from "node:crypto";
import { isIP, type LookupFunction, connect as openTcp, type Socket } from "node:net";
import { connect as openTls, type PeerCertificate, type SecureContext, type TLSSocket } from "node:tls";
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

/** A connection from its dialling on. */
export interface Dialled {
  /** The TCP socket below TLS: what comes in is counted there. */
  readonly below: Socket;
  /**
   * Ends it in whatever state it is. By way of TLS once that is there: Node crashes (SIGSEGV, 24.21) where the
   * socket below is destroyed while TLS is at work on it, such as in a callback of its own.
   */
  end(error: Error): void;
}

/** Returns what it dials while it connects, so that a deadline can end it; undefined where nothing is dialled. */
export type Connector = (target: ConnectTarget, done: ConnectCallback) => Dialled | undefined;

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
export function createConnector(options: ConnectorOptions): Connector {
  const { resolver, permitsHost, trust } = options;
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

    let pending: ConnectCallback | undefined = done;
    // Stays on both sockets for their lives: an error between two owners must not become an uncaught one.
    const fail = (error: Error) => {
      pending?.(error, null);
      pending = undefined;
    };
    const closed = new AbortController();
    const below = openTcp({
      host: hostname,
      port: port === "" ? 443 : Number(port),
      lookup: guardedLookup(resolver, permitsAddress, closed.signal),
      noDelay: true,
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
    });
    below.on("error", fail);
    below.once("close", () => {
      closed.abort();
      fail(new EgressError("EGRESS_DROPPED", "the connection was closed"));
    });
    let above: TLSSocket | undefined;
    below.once("connect", () => {
      const refusal = refusalOfPeer(below.remoteAddress, permitsAddress);
      if (refusal !== undefined) {
        below.destroy(refusal);
        return;
      }
      const socket = openTls({
        socket: below,
        ...(literal ? { checkServerIdentity: certificateCheckFor(hostname) } : { servername: hostname }),
        secureContext: trust,
        rejectUnauthorized: true,
        ALPNProtocols: ["http/1.1"],
      });
      above = socket;
      socket.on("error", fail);
      socket.on("secureConnect", () => {
        // In TLS 1.2 a receiver may ask for another handshake. OpenSSL's option to refuse answers each such
        // message with an alert, 20 µs apiece and as many as come; so the first is followed and ends it here.
        if (pending === undefined) socket.destroy(new EgressError("EGRESS_DROPPED", "a second handshake"));
        pending?.(null, socket);
        pending = undefined;
      });
    });
    return { below, end: (error) => (above ?? below).destroy(error) };
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
 * The name check for a literal, which has no name to ask for. OpenSSL's own comparison: Node 22.23's finds no
 * IPv6 address in any certificate.
 *
 * Failure policy: fail closed — a certificate that cannot be read is for no address.
 */
function certificateCheckFor(
  address: string,
): (host: string, certificate: PeerCertificate) => Error | undefined {
  return (_host, certificate) => {
    try {
      if (new X509Certificate(certificate.raw).checkIP(address) !== undefined) return undefined;
    } catch {}
    const error = new Error("the certificate is not for this address");
    return Object.assign(error, { code: "ERR_TLS_CERT_ALTNAME_INVALID" });
  };
}

/** The last check: who is really at the other end. A peer that is gone already has no address: a network error. */
function refusalOfPeer(
  peer: string | undefined,
  permitsAddress: (address: string) => boolean,
): EgressError | undefined {
  if (peer === undefined) return new EgressError("EGRESS_PEER_UNKNOWN", "the peer has no address");
  if (permitsAddress(peer)) return undefined;
  return new EgressRefusal("address not permitted", "the address is not permitted");
}
