/** Sends one POST to a destination that a client chose, and only where the operator lets it go. */
import { isIP } from "node:net";
import { classify } from "./addresses.ts";
import { Attempt, type Done, type Verdict } from "./attempt.ts";
import { BoundedMap } from "./bounded-map.ts";
import { Connections } from "./connections.ts";
import { createConnector } from "./connector.ts";
import { type DestinationUrl, parseDestinationUrl } from "./destination-url.ts";
import type { Destinations } from "./destinations.ts";
import { EgressError, EgressRefusal, failed, type Outcome } from "./failure.ts";
import { createResolver, type ResolvedAddress, type SystemLookup } from "./resolver.ts";
import { createTrust } from "./trust.ts";

export interface SenderOptions {
  readonly destinations: Destinations;
  /** Lets a destination be inside the deployment. What is `never` stays refused. */
  readonly permitPrivate: boolean;
  /** PEM certificates trusted besides the process's own trust. */
  readonly extraCa?: string;
  /** Milliseconds for one attempt in all, from the name's look-up to the status line. */
  readonly timeoutMs: number;
  readonly userAgent: string;
  /** Connections to one origin at once. A post that finds none free waits, inside its time limit. */
  readonly connectionsPerOrigin: number;
  /** Connections kept while no one waits on them, idle or still reading a body, over all origins. Default 256. */
  readonly maxIdleConnections?: number;
  /** For tests: in place of the system's look-up. */
  readonly lookup?: SystemLookup;
  /** For tests: milliseconds an answer is used for, at most and by default 1,000; 0 looks up at every check. */
  readonly answerLifetimeMs?: number;
}

export interface Sender {
  /**
   * The check at registration: the text, the allow-list, and the addresses the name has now. A name that
   * does not resolve within `timeoutMs` passes: it may later, and every attempt checks again.
   *
   * @throws EgressRefusal, category "destination not permitted"; else the signal's reason if it fires first,
   * which says of the text and the allow-list that they permit it
   */
  vet(rawUrl: string, signal?: AbortSignal): Promise<DestinationUrl>;
  /**
   * One attempt: check, connect, send, and read up to the status line, which decides. Never rejects, never
   * follows a redirect, never goes by a proxy, never sends the request twice. `host` and `user-agent` in
   * `headers` are left out. `onWritten` is called before the request's first byte goes out: where it was not,
   * the receiver has nothing of it.
   */
  post(
    href: string,
    headers: Record<string, string>,
    body: string | Buffer,
    signal?: AbortSignal,
    onWritten?: () => void,
  ): Promise<Outcome>;
  /** Ends every attempt under way as "aborted". Cheaper than a signal that all of them listen to. */
  abort(): void;
  /** Ends all connections now; what is under way, or comes later, is "aborted". */
  close(): Promise<void>;
}

/** Parsed destinations remembered: parsing one costs more than the rest of the check. */
const MAX_TARGETS = 10_000;
const DEFAULT_MAX_IDLE = 256;
const ABORTED: Outcome = Object.freeze({ kind: "aborted" });

/**
 * Builds a sender with connections of its own: it reads no environment and shares nothing with any other, so
 * a change of policy is a new sender and `close` on the old one.
 *
 * @throws CertificateAuthorityError where `extraCa` is no PEM
 */
export function createSender(options: SenderOptions): Sender {
  const { destinations, permitPrivate, timeoutMs, userAgent } = options;
  const resolver = createResolver({
    ...options,
    groupOf: (hostname) => destinations.entryFor(hostname) ?? hostname,
  });
  const connections = new Connections(
    createConnector({
      resolver,
      permitsHost: (hostname) => destinations.permits(hostname),
      permitsAddress,
      trust: createTrust(options.extraCa),
    }),
    options.connectionsPerOrigin,
    options.maxIdleConnections ?? DEFAULT_MAX_IDLE,
  );
  const targets = new BoundedMap<string, DestinationUrl>(MAX_TARGETS);
  const underWay = new Set<Attempt>();
  let closed = false;

  function permitsAddress(address: string): boolean {
    const found = classify(address);
    return found === "public" || (found === "inside" && permitPrivate);
  }

  function verdictOnAddresses(addresses: readonly ResolvedAddress[]): Verdict {
    return addresses.every(({ address }) => permitsAddress(address))
      ? undefined
      : "destination not permitted";
  }

  /**
   * The check before an attempt. It is a promise only where the resolver has to be asked, which it never is
   * about a host off the list. Rejects where the name does not resolve.
   *
   * Failure policy: fail closed — one address that is not permitted refuses the name; a name without
   * addresses is not sent to.
   */
  function verdictOn({ hostname }: DestinationUrl, givenUp: () => AbortSignal): Verdict | Promise<Verdict> {
    if (!destinations.permits(hostname)) return "destination not permitted";
    if (isIP(hostname) !== 0) return permitsAddress(hostname) ? undefined : "destination not permitted";
    const known = resolver.cached(hostname);
    if (known !== undefined) return verdictOnAddresses(known);
    return resolver.resolve(hostname, givenUp()).then(verdictOnAddresses);
  }

  /** The verdict, or nothing against it when the time is up: at registration what cannot be resolved passes. */
  async function verdictInTime(target: DestinationUrl, signal: AbortSignal | undefined): Promise<Verdict> {
    const limit = new AbortController();
    const end = () => limit.abort();
    const timer = setTimeout(end, timeoutMs);
    signal?.addEventListener("abort", end, { once: true });
    if (signal?.aborted) end();
    try {
      return await verdictOn(target, () => limit.signal);
    } catch (error) {
      if (error instanceof EgressError && error.code === "EGRESS_UNRESOLVED") return undefined;
      throw error;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
  }

  function targetOf(href: string): DestinationUrl {
    const known = targets.get(href);
    if (known !== undefined) return known;
    const target = parseDestinationUrl(href);
    targets.set(href, target);
    return target;
  }

  function headerList(headers: Record<string, string>): string[] {
    const list = ["user-agent", userAgent];
    for (const name of Object.keys(headers)) {
      const value = headers[name];
      // undici would take a `host` of the caller's for the name to ask for, and to check the certificate by.
      if (value !== undefined && !OWN_HEADER.test(name)) list.push(name, value);
    }
    return list;
  }

  function abort(): void {
    for (const attempt of underWay) attempt.cut(ABORTED);
  }

  return {
    async vet(rawUrl, signal) {
      const target = parseDestinationUrl(rawUrl);
      if ((await verdictInTime(target, signal)) !== undefined) {
        throw new EgressRefusal("destination not permitted", "the URL's host is not one that may be sent to");
      }
      signal?.throwIfAborted();
      return target;
    },

    post(href, headers, body, signal, onWritten) {
      if (closed || signal?.aborted) return Promise.resolve(ABORTED);
      let target: DestinationUrl;
      try {
        target = targetOf(href);
      } catch {
        return Promise.resolve(failed("destination not permitted"));
      }
      return new Promise((resolve) => {
        const done: Done = (attempt, outcome) => {
          underWay.delete(attempt);
          resolve(outcome);
        };
        const { origin, path } = target;
        const request = { origin, path, headers: headerList(headers), body, timeoutMs, signal, onWritten };
        const attempt = new Attempt(request, connections, done);
        underWay.add(attempt);
        attempt.start(() => verdictOn(target, () => attempt.givenUp));
      });
    },

    abort,

    async close() {
      closed = true;
      abort();
      await connections.close();
    },
  };
}

const OWN_HEADER = /^(?:host|user-agent)$/i;
