// Token buckets, one a key, in this process's memory: a caller over its rate is told when to return.

interface Bucket {
  tokens: number;
  at: number;
}

/** Beyond this many keys the least recently used is forgotten, which only ever favours its caller. */
const MAX_KEYS = 10_000;

export class RateLimit {
  readonly #perSecond: number;
  readonly #burst: number;
  readonly #now: () => number;
  readonly #buckets = new Map<string, Bucket>();

  /** `now` is in milliseconds. */
  constructor(perSecond: number, burst: number, now: () => number = () => performance.now()) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#now = now;
  }

  /** Whole seconds until `key` has a token; 0 where it has one, or is not known. */
  wait(key: string): number {
    const bucket = this.#buckets.get(key);
    return bucket === undefined ? 0 : this.#secondsLeft(this.#tokens(bucket, this.#now()));
  }

  /** Takes one token of `key`'s; 0, or the whole seconds until there is one. */
  take(key: string): number {
    const now = this.#now();
    const known = this.#buckets.get(key);
    const tokens = known === undefined ? this.#burst : this.#tokens(known, now);
    const seconds = this.#secondsLeft(tokens);
    this.#buckets.delete(key);
    this.#buckets.set(key, { tokens: seconds === 0 ? tokens - 1 : tokens, at: now });
    if (this.#buckets.size > MAX_KEYS) {
      const [oldest] = this.#buckets.keys();
      if (oldest !== undefined) this.#buckets.delete(oldest);
    }
    return seconds;
  }

  #tokens({ tokens, at }: Bucket, now: number): number {
    return Math.min(this.#burst, tokens + ((now - at) / 1_000) * this.#perSecond);
  }

  #secondsLeft(tokens: number): number {
    return tokens >= 1 ? 0 : Math.max(1, Math.ceil((1 - tokens) / this.#perSecond));
  }
}
