// The demo as a client of the service: the HTTP API, by token, as any other client would use it.
import { setTimeout as sleep } from "node:timers/promises";
import { Agent, request } from "undici";
import { DemoError } from "./error.ts";

const ANSWER_LIMIT_MS = 5_000;
const LISTENING_LIMIT_MS = 10_000;
const PAGE = 200;

/** What the demo reads of a delivery in `POST /v1/notifications/deliveries/list`. */
export interface ListedDelivery {
  formed_through: number;
  state: "pending" | "delivered" | "parked" | "superseded";
  attempts: number;
  next_attempt_at?: string;
  last_status?: number;
  last_error?: string;
}

export class Api {
  readonly #url: string;
  // A dispatcher of its own: a proxy that the environment names has no business here.
  readonly #dispatcher = new Agent({ connections: 2 });

  constructor(url: string) {
    this.#url = url;
  }

  /** Waits until the service hears commits; before that its polling would be measured. @throws DemoError */
  async listening(): Promise<void> {
    const deadline = performance.now() + LISTENING_LIMIT_MS;
    while (performance.now() < deadline) {
      const { listener } = (await this.#call("GET", "/ready")) as { listener: string };
      if (listener === "up") return;
      await sleep(10);
    }
    throw new DemoError("the service started and does not hear its database; run the demo again");
  }

  /** @throws DemoError */
  async register(token: string, url: string): Promise<{ id: string; secret: string }> {
    const answer = await this.#call("POST", "/v1/notifications/endpoints/register", token, { url });
    return answer as { id: string; secret: string };
  }

  /** The project's newest delivery. @throws DemoError */
  async newestDelivery(token: string): Promise<ListedDelivery | undefined> {
    return (await this.#deliveries(token, { limit: 1 })).deliveries[0];
  }

  /** The offsets that the service has recorded as delivered. @throws DemoError */
  async deliveredOffsets(token: string): Promise<Set<number>> {
    const offsets = new Set<number>();
    let after: string | undefined;
    do {
      const page = await this.#deliveries(token, { state: "delivered", limit: PAGE, after });
      for (const delivery of page.deliveries) offsets.add(delivery.formed_through);
      after = page.next;
    } while (after !== undefined);
    return offsets;
  }

  async close(): Promise<void> {
    await this.#dispatcher.destroy();
  }

  async #deliveries(token: string, query: object): Promise<{ deliveries: ListedDelivery[]; next?: string }> {
    const answer = await this.#call("POST", "/v1/notifications/deliveries/list", token, query);
    return answer as { deliveries: ListedDelivery[]; next?: string };
  }

  async #call(method: "GET" | "POST", path: string, token?: string, body?: object): Promise<unknown> {
    const options = {
      method,
      dispatcher: this.#dispatcher,
      headersTimeout: ANSWER_LIMIT_MS,
      bodyTimeout: ANSWER_LIMIT_MS,
      ...(token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } }),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    };
    try {
      const { statusCode, body: answer } = await request(`${this.#url}${path}`, options);
      const document = (await answer.json()) as { error?: { message?: string } };
      if (statusCode === 200) return document;
      throw new DemoError(`the service answered ${statusCode} to ${path}: ${document.error?.message ?? ""}`);
    } catch (error) {
      if (error instanceof DemoError) throw error;
      throw new DemoError(
        `the service did not answer ${path}: ${(error as Error).message}; run the demo again`,
        {
          cause: error,
        },
      );
    }
  }
}
