// The parent's end of the receiver's process: what arrived so far, by delivery and by endpoint.
import { type ChildProcess, fork } from "node:child_process";
import type { Certificate } from "../../src/demo/authority.ts";
import type { Arrival, FromReceiver, ToReceiver } from "./receiver.ts";

export class ReceiverProcess {
  readonly #child: ChildProcess;
  /** Every request, in the order of arrival. */
  readonly arrivals: Arrival[] = [];
  /** `https://localhost:<port>/`. */
  origin = "";

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on("message", (message: FromReceiver) => {
      if (message.kind === "arrivals") this.arrivals.push(...message.arrivals);
      else if (message.kind === "listening") this.origin = message.origin;
    });
  }

  static async start(certificate: Certificate): Promise<ReceiverProcess> {
    // In a process group of its own: a Ctrl-C in the terminal is for the parent alone.
    const child = fork(new URL("./receiver.ts", import.meta.url), { detached: true });
    const receiver = new ReceiverProcess(child);
    receiver.#tell({ kind: "start", certificate });
    await receiver.#hear("listening");
    return receiver;
  }

  expect(secrets: [path: string, secret: string][]): void {
    this.#tell({ kind: "secrets", secrets });
  }

  /** Settles when everything that has arrived is in `arrivals`. */
  async flush(): Promise<void> {
    this.#tell({ kind: "flush" });
    await this.#hear("flushed");
  }

  close(): void {
    this.#child.kill("SIGKILL");
  }

  #tell(message: ToReceiver): void {
    this.#child.send(message);
  }

  async #hear(kind: FromReceiver["kind"]): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const onMessage = (message: FromReceiver) => {
      if (message.kind === kind) resolve();
    };
    const onExit = () => reject(new Error("the receiver's process ended"));
    this.#child.on("message", onMessage);
    this.#child.once("exit", onExit);
    await promise.finally(() => {
      this.#child.off("message", onMessage);
      this.#child.off("exit", onExit);
    });
  }
}
