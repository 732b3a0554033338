// How the demo is ended early: Ctrl-C, SIGTERM, a closed terminal, or a reader of its output that left
// (`npm run demo | head`). The first of them asks it to stop and to clear up.

/**
 * Under `npm run`, one Ctrl-C arrives twice: from the terminal and from npm, which passes it on. Only a
 * signal later than this is somebody who will not wait.
 */
const ONE_PRESS_MS = 1_000;

export interface Interruption {
  /** Aborted at the first request to stop. */
  readonly signal: AbortSignal;
  /** Gives the signals back to whoever had them. */
  release(): void;
}

/** From here on a signal ends nothing by itself; a second one ends the process at once. */
export function watchInterruption(): Interruption {
  const controller = new AbortController();
  let since: number | undefined;
  const onSignal = () => {
    if (since !== undefined && performance.now() - since > ONE_PRESS_MS) process.exit(1);
    since ??= performance.now();
    controller.abort();
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const name of signals) process.on(name, onSignal);
  // Unheard, the broken pipe would end the process with everything still running. It stays on: the
  // command's last words come after the release.
  process.stdout.on("error", () => controller.abort());
  return {
    signal: controller.signal,
    release() {
      for (const name of signals) process.off(name, onSignal);
    },
  };
}
