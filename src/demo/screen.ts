// What the demo shows, for a terminal of 80 columns: colours and passing lines on a terminal only, the
// same lines plain where the output is piped, nothing at all under --json.
import { styleText } from "node:util";
import { formatDuration } from "../settings/duration.ts";
import { readSettings } from "../settings/settings.ts";
import { FAILING_STATUS, type FailedAttempt } from "./parking.ts";
import { ATTEMPTS, BACKOFF_MS, type Step } from "./stage.ts";
import { percentile } from "./statistics.ts";
import type { MeasuredTurn } from "./turns.ts";

const BAR_CELLS = 20;
const BAR_CELL_MS = 0.5;

/** Below this many values the nearest rank of the 99th percentile is the largest one. */
const P99_NEEDS = 100;

type Style = "bold" | "dim" | "green" | "red" | "yellow" | "bgCyan";

export interface ScreenOptions {
  /** Undefined: nothing is shown. */
  output: NodeJS.WriteStream | undefined;
  /** A set NO_COLOR turns colours off. */
  environment: NodeJS.ProcessEnv;
  /** Whether this is the installed command, and not a checkout with its npm scripts and docs. */
  installed: boolean;
}

export class Screen {
  readonly #output: NodeJS.WriteStream | undefined;
  readonly #terminal: boolean;
  readonly #colour: boolean;
  readonly #installed: boolean;

  constructor({ output, environment, installed }: ScreenOptions) {
    this.#output = output;
    this.#terminal = output?.isTTY === true;
    this.#colour = this.#terminal && (environment.NO_COLOR ?? "") === "";
    this.#installed = installed;
  }

  opening(): void {
    this.#lines(
      this.#style("bold", "taisce-notify tells a project's endpoint, at once, that its memory has formed."),
      "Here it does so on real parts: a PostgreSQL, the service, and HTTPS receivers",
      "that check each signature. All of it is the demo's own, and removed at the end.",
      "",
    );
  }

  /** A line that passes while the work is under way, then one that stays, with how long it took. */
  readonly step: Step = async (label, work, done) => {
    this.#passing(`  ..  ${label}`);
    const started = performance.now();
    const value = await work().catch((error: unknown) => {
      this.#passing("");
      throw error;
    });
    const took = `${((performance.now() - started) / 1_000).toFixed(2)} s`;
    this.#lines(`  ${this.#style("green", "ok")}  ${done(value).padEnd(62)}${took.padStart(8)}`);
    return value;
  };

  turnsHeading(intervalMs: number): void {
    this.#lines(
      "",
      `${this.#style("bold", "Turns are stored and formed")}, up to ${Math.round(1_000 / intervalMs)} a second; a request should follow each.`,
      "",
      this.#style("dim", "  turn   offset   commit to receipt   signature"),
    );
  }

  turn({ number, offset, latencyMs, verified, connected }: MeasuredTurn): void {
    const latency =
      latencyMs === undefined
        ? this.#style("red", "not received".padStart(17))
        : this.#ms(latencyMs).padStart(17);
    const cells = [
      String(number).padStart(6),
      String(offset).padStart(6),
      latency,
      ...(latencyMs === undefined
        ? []
        : [
            verified ? this.#style("green", "verified") : this.#style("red", "REFUSED "),
            connected ? this.#style("dim", "new connection") : this.#bar(latencyMs),
          ]),
    ];
    this.#lines(cells.join("   ").trimEnd());
  }

  /** The figures of all turns so far; `explained` says what they mean, once. */
  figures(turns: readonly MeasuredTurn[], delivered: number, { explained }: { explained: boolean }): void {
    if (turns.length === 0) return;
    const latencies = turns.flatMap(({ latencyMs }) => latencyMs ?? []);
    const verified = turns.filter((turn) => turn.verified).length;
    const figure = (name: string, share: number) =>
      `${name} ${this.#style("bold", this.#ms(percentile(latencies, share)))}`;
    const all = (count: number) => this.#style(count === turns.length ? "green" : "red", String(count));
    this.#lines(
      "",
      `  ${figure("p50", 0.5)}   ${figure("p99", 0.99)}   ${figure("max", 1)}`,
      `  ${all(delivered)} of ${turns.length} delivered, ${all(verified)} verified`,
    );
    if (!explained || latencies.length === 0) return;
    this.#lines(
      "",
      ...[
        "  commit to receipt: from just before COMMIT is sent until the receiver has read",
        "  the request; writer, service and receiver share one process here. verified: by",
        "  the raw body, its header and the secret that registration returned. delivered:",
        `  as the service lists it.${latencies.length < P99_NEEDS ? ` Of fewer than ${P99_NEEDS} turns p99 is the slowest.` : ""}`,
      ].map((line) => this.#style("dim", line)),
    );
  }

  parkingHeading(): void {
    const { attempts, backoffMs } = readSettings({});
    this.#lines(
      "",
      `${this.#style("bold", "Another project's receiver is down")}: it answers ${FAILING_STATUS}. The service tries ${ATTEMPTS} times,`,
      `waits ${BACKOFF_MS} ms first, then twice as long each time, and parks the delivery.`,
      `(Demo-sized: the defaults are ${attempts} attempts and ${formatDuration(backoffMs)}.)`,
      "",
      this.#style("dim", "  attempt   waited   answer   then (POST /v1/notifications/deliveries/list)"),
    );
  }

  failedAttempt({ number, waitedMs, delivery, nextInMs }: FailedAttempt): void {
    const then =
      nextInMs === undefined
        ? `${this.#style("yellow", delivery.state)} after ${delivery.attempts} attempts: ${delivery.last_error}`
        : `${delivery.state}, next attempt in ${Math.round(nextInMs)} ms`;
    const waited = waitedMs === undefined ? "-" : `${Math.round(waitedMs)} ms`;
    const answer = String(delivery.last_status ?? "-");
    this.#lines(`${String(number).padStart(9)}${waited.padStart(9)}${answer.padStart(9)}   ${then}`);
  }

  goingOn(): void {
    this.#lines("", `${this.#style("bold", "Turns go on")}, one a second. Ctrl-C ends the demo.`, "");
  }

  gap(): void {
    this.#lines("");
  }

  /** The last words; they stand on the screen when everything is gone. */
  closing(started: boolean): string {
    if (!started) return "Stopped before the first turn; nothing is left.";
    const next = [
      [
        this.#installed ? "taisce-notify serve" : "npm start",
        "the service; unconfigured, with an embedded PostgreSQL",
      ],
      ["README.md", "from a fresh project to a verified delivery, by curl"],
      ...(this.#installed ? [] : [["docs/receivers.md", "how a receiver checks what it is sent"]]),
    ];
    return [
      "",
      this.#style("bold", "What next"),
      ...next.map(([what = "", why = ""]) => `  ${what.padEnd(20)} ${why}`),
    ].join("\n");
  }

  #ms(milliseconds: number | undefined): string {
    return milliseconds === undefined ? "-" : `${milliseconds.toFixed(2)} ms`;
  }

  /** One cell is half a millisecond; `+` stands for what the line has no room for. */
  #bar(milliseconds: number): string {
    const cells = Math.max(1, Math.round(milliseconds / BAR_CELL_MS));
    const bar = (this.#colour ? " " : "=").repeat(Math.min(cells, BAR_CELLS));
    return `${this.#style("bgCyan", bar)}${cells > BAR_CELLS ? "+" : ""}`;
  }

  #style(style: Style, text: string): string {
    return this.#colour ? styleText(style, text, { validateStream: false }) : text;
  }

  #passing(line: string): void {
    if (this.#terminal) this.#output?.write(`\r\x1b[K${this.#style("dim", line)}`);
  }

  #lines(...lines: string[]): void {
    this.#output?.write(`${this.#terminal ? "\r\x1b[K" : ""}${lines.join("\n")}\n`);
  }
}
