/**
 * Names to addresses: one look-up shared by all who ask for a name at once, and an answer used for a moment
 * only, so that the check before a send and the connect right after it see the same addresses.
 */
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { BoundedMap } from "./bounded-map.ts";
import { EgressError } from "./failure.ts";
import { type LookupJob, LookupQueue } from "./lookup-queue.ts";

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
  /** Names of one group share the few look-ups that may run for it at once. Default: each name for itself. */
  groupOf?: (hostname: string) => string;
}

export interface Resolver {
  /** The answer to this name if one is at hand that is fresh enough. */
  cached(hostname: string): readonly ResolvedAddress[] | undefined;
  /**
   * At least one address. Rejects with EGRESS_UNRESOLVED, also when the signal fires first; has no time limit
   * of its own. A look-up nobody waits for any more is not started.
   */
  resolve(hostname: string, signal?: AbortSignal): Promise<readonly ResolvedAddress[]>;
}

const MAX_ANSWER_LIFETIME_MS = 1_000;
/**
 * An answer used after this part of its time has the name asked about again meanwhile: of sends that follow each other
 * closely, none waits for a look-up then, where one a second did.
 */
const ASK_AGAIN_AFTER = 0.5;
/** Names remembered at once; the oldest goes first. */
const MAX_NAMES = 1_000;
/** Addresses of one answer that are looked at; a name with more is nobody's receiver. */
const MAX_ADDRESSES = 64;

interface Answer {
  readonly addresses: readonly ResolvedAddress[];
  readonly arrivedAt: number;
}

type Asker = PromiseWithResolvers<readonly ResolvedAddress[]>;

/** One name being asked about, and everyone who waits for the answer. */
interface Question extends LookupJob {
  readonly askers: Set<Asker>;
}

const systemLookup: SystemLookup = (hostname) => lookup(hostname, { all: true });

export function createResolver(options: ResolverOptions = {}): Resolver {
  const ask = options.lookup ?? systemLookup;
  const groupOf = options.groupOf ?? ((hostname) => hostname);
  const lifetime = Math.min(options.answerLifetimeMs ?? MAX_ANSWER_LIFETIME_MS, MAX_ANSWER_LIFETIME_MS);
  const answers = new BoundedMap<string, Answer>(MAX_NAMES);
  const questions = new Map<string, Question>();
  const queue = new LookupQueue();

  /** The question about this name, asked now unless it is under way. */
  function questionOf(hostname: string, ...askers: Asker[]): Question {
    const shared = questions.get(hostname);
    if (shared !== undefined) {
      for (const asker of askers) shared.askers.add(asker);
      return shared;
    }
    const question: Question = {
      hostname,
      group: groupOf(hostname),
      askers: new Set(askers),
      run: () => answer(question),
    };
    questions.set(hostname, question);
    queue.add(question);
    return question;
  }

  async function answer({ hostname, askers }: Question): Promise<void> {
    try {
      const addresses = checkedAnswer(await ask(hostname));
      if (lifetime > 0) answers.set(hostname, { addresses, arrivedAt: performance.now() });
      for (const { resolve } of askers) resolve(addresses);
    } catch {
      for (const { reject } of askers) reject(unresolved("the name does not resolve"));
    }
    questions.delete(hostname);
  }

  function giveUp(question: Question, asker: Asker): void {
    asker.reject(unresolved("nobody waits for the name any more"));
    question.askers.delete(asker);
    if (question.askers.size === 0 && queue.remove(question)) questions.delete(question.hostname);
  }

  const resolver: Resolver = {
    cached(hostname) {
      const answer = answers.get(hostname);
      if (answer === undefined) return undefined;
      const age = performance.now() - answer.arrivedAt;
      if (age >= lifetime * ASK_AGAIN_AFTER && age < lifetime) questionOf(hostname);
      if (age < lifetime) return answer.addresses;
      answers.delete(hostname);
      return undefined;
    },
    resolve(hostname, signal) {
      const answer = resolver.cached(hostname);
      if (answer !== undefined) return Promise.resolve(answer);
      if (signal?.aborted) return Promise.reject(unresolved("nobody waits for the name any more"));
      const asker: Asker = Promise.withResolvers();
      const question = questionOf(hostname, asker);
      signal?.addEventListener("abort", () => giveUp(question, asker), { once: true });
      return asker.promise;
    },
  };
  return resolver;
}

function unresolved(message: string): EgressError {
  return new EgressError("EGRESS_UNRESOLVED", message);
}

/** Failure policy: fail closed — an empty or overlong answer, or one with something in it that is no address, is no answer. */
function checkedAnswer(answer: readonly { address: string; family: number }[]): readonly ResolvedAddress[] {
  if (answer.length === 0 || answer.length > MAX_ADDRESSES) throw unresolved("no usable addresses");
  return answer.map(({ address, family }) => {
    if ((family !== 4 && family !== 6) || isIP(address) !== family) throw unresolved("not an address");
    return { address, family };
  });
}
