/**
 * Names to addresses: one look-up shared by all who ask for a name at once, and an answer used for a moment
 * only, so that the check before a send and the connect right after it see the same addresses.
 */
import { lookup } from "node:dns/promises";
import { BoundedMap } from "./bounded-map.ts";
import { EgressError } from "./failure.ts";

/** One address of a name; the form that `net.connect` takes from a `lookup`. */
export interface ResolvedAddress {
  readonly address: string;
  readonly family: 4 | 6;
}

/** Asks the system for all addresses of a name. However it fails, the name does not resolve just now. */
export type SystemLookup = (hostname: string) => Promise<readonly { address: string; family: number }[]>;

export interface ResolverOptions {
  /** Default: `getaddrinfo`, which knows /etc/hosts and the search domains; it runs in libuv's thread pool. */
  lookup?: SystemLookup;
  /** Milliseconds an answer is used for, from its arrival. Default and at most 1,000. */
  answerLifetimeMs?: number;
}

export interface Resolver {
  /** The answer to this name if one is at hand that is fresh enough. */
  cached(hostname: string): readonly ResolvedAddress[] | undefined;
  /** At least one address. Rejects with EGRESS_UNRESOLVED; has no time limit of its own. */
  resolve(hostname: string): Promise<readonly ResolvedAddress[]>;
}

const MAX_ANSWER_LIFETIME_MS = 1_000;
/** Names remembered at once; the oldest goes first. */
const MAX_NAMES = 1_000;
/** Addresses of one answer that are looked at; a name with more is nobody's receiver. */
const MAX_ADDRESSES = 64;

interface Answer {
  readonly addresses: readonly ResolvedAddress[];
  readonly arrivedAt: number;
}

const systemLookup: SystemLookup = (hostname) => lookup(hostname, { all: true });

export function createResolver(options: ResolverOptions = {}): Resolver {
  const ask = options.lookup ?? systemLookup;
  const lifetime = Math.min(options.answerLifetimeMs ?? MAX_ANSWER_LIFETIME_MS, MAX_ANSWER_LIFETIME_MS);
  const answers = new BoundedMap<string, Answer>(MAX_NAMES);
  const underWay = new Map<string, Promise<readonly ResolvedAddress[]>>();

  async function askAndRemember(hostname: string): Promise<readonly ResolvedAddress[]> {
    let answer: Awaited<ReturnType<SystemLookup>>;
    try {
      answer = await ask(hostname);
    } catch {
      throw new EgressError("EGRESS_UNRESOLVED", "the name does not resolve");
    }
    const addresses = checkedAnswer(answer);
    if (lifetime > 0) answers.set(hostname, { addresses, arrivedAt: performance.now() });
    return addresses;
  }

  const resolver: Resolver = {
    cached(hostname) {
      const answer = answers.get(hostname);
      if (answer === undefined) return undefined;
      if (performance.now() - answer.arrivedAt < lifetime) return answer.addresses;
      answers.delete(hostname);
      return undefined;
    },
    resolve(hostname) {
      const answer = resolver.cached(hostname);
      if (answer !== undefined) return Promise.resolve(answer);
      const shared = underWay.get(hostname);
      if (shared !== undefined) return shared;
      const asked = askAndRemember(hostname);
      underWay.set(hostname, asked);
      const forget = () => underWay.delete(hostname);
      asked.then(forget, forget);
      return asked;
    },
  };
  return resolver;
}

/** Failure policy: fail closed — an empty or overlong answer, or one with something other than 4 or 6, is no answer. */
function checkedAnswer(answer: readonly { address: string; family: number }[]): readonly ResolvedAddress[] {
  if (answer.length === 0 || answer.length > MAX_ADDRESSES) {
    throw new EgressError("EGRESS_UNRESOLVED", "the name has no usable addresses");
  }
  return answer.map(({ address, family }) => {
    if (family !== 4 && family !== 6)
      throw new EgressError("EGRESS_UNRESOLVED", "an address of an unknown family");
    return { address, family };
  });
}
