// A service that delivers to a real receiver, for tests of the ledger: its calls, its rows, its crashes.

import type { Answer, ReceivedRequest, Receiver } from "../../src/demo/receiver.ts";
import type { LedgerRow } from "../../src/ledger/ledger.ts";
import type { ApiAnswer } from "./api.ts";
import { api } from "./api.ts";
import { type ApiProject, apiProject, DELIVER, REGISTER, ROWS } from "./api-project.ts";
import { type Environment, type ServeProcess, serve } from "./cli.ts";
import { type TestNamespace, testNamespace } from "./namespaces.ts";
import { testAuthority, testReceiver } from "./receivers.ts";

export interface LedgerBench {
  test: TestNamespace;
  project: ApiProject;
  receiver: Receiver;
  service: ServeProcess;
  /** The settings the service runs with, for another process on the same namespace. */
  environment: Environment;
  /** Registers `path` of the receiver. */
  endpoint(path: string, more?: object): Promise<{ id: string; secret: string }>;
  /** One call, of a key to an endpoint unless `more` says otherwise. */
  deliver(scope: string, idempotency: string, more?: object, base?: string): Promise<ApiAnswer>;
  rows(filter?: object): Promise<LedgerRow[]>;
  /** How many requests the receiver got at a path. */
  sends(path: string): number;
}

export async function ledgerBench(
  options: {
    answer?: (request: ReceivedRequest) => Answer | Promise<Answer>;
    environment?: Environment;
    /** Where the service is, unless on a namespace of its own. */
    test?: TestNamespace;
  } = {},
): Promise<LedgerBench> {
  const test = options.test ?? (await testNamespace());
  const receiver = await testReceiver(options.answer === undefined ? {} : { answer: options.answer });
  const environment = {
    DATABASE_URL: test.url,
    TAISCE_NAMESPACE: test.namespace.name,
    TAISCE_NOTIFY_DESTINATIONS: "localhost",
    TAISCE_NOTIFY_PERMIT_PRIVATE: "true",
    TAISCE_NOTIFY_CA_FILE: (await testAuthority()).caFile,
    ...options.environment,
  };
  const service = await serve(environment);
  const project = await apiProject(test, service.url);
  return {
    test,
    project,
    receiver,
    service,
    environment,
    async endpoint(path, more = {}) {
      const { body } = await project.client.post(REGISTER, { url: receiver.url(path), ...more });
      return body;
    },
    deliver: (scope, idempotency, more = {}, base = service.url) =>
      api(base, project.token).post(DELIVER, {
        target: "https/deliver",
        scope,
        idempotency,
        identity_id: "someone",
        run_id: "run-1",
        ...more,
      }),
    rows: (filter = {}) => project.client.post(ROWS, filter).then(({ body }) => body.deliveries),
    sends: (path) => receiver.received.filter((request) => request.path === path).length,
  };
}

/** What a receiver can be told to do, and when it was reached. */
export function gate() {
  const opened = Promise.withResolvers<void>();
  return { wait: opened.promise, open: opened.resolve };
}
