// What an accepted notification's row in the ledger costs: the drain with it and without it, in deliveries a
// second, and in processor time, which a busy machine disturbs less.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Peer, Setup } from "../peers/peer.ts";
import { taisce } from "../peers/taisce.ts";
import { familyMicros } from "../process-watch.ts";
import { drainOnce } from "./drain.ts";
import type { Measure } from "./measure.ts";

const WITHOUT = "ledger off";

export const ledger: Measure = {
  name: "ledger",
  title: "cost of the ledger, draining",
  yardstick: WITHOUT,
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "workerMicros", title: "worker CPU µs each", digits: 0, better: "less" },
    { figure: "databaseMicros", title: "database CPU µs each", digits: 0, better: "less" },
  ],
  async *run(context) {
    for (const count of [1, 100]) {
      for (const word of ["off", "on"]) {
        const { peer, databaseMicros } = taisceWith({ TAISCE_LEDGER_NOTIFICATIONS: word });
        const condition = `${count} endpoint${count === 1 ? "" : "s"}`;
        const sample = await drainOnce(context, peer, count, `${condition}, ledger ${word}`);
        const figures = { ...sample.figures, databaseMicros: databaseMicros() / context.options.count };
        // Compared with each other, so they stand where contenders do elsewhere.
        yield { ...sample, figures, measure: "ledger", condition, peer: WITHOUT.replace("off", word) };
      }
    }
  },
};

/** This product with settings of its own, and what the server used from its start to its stop. */
function taisceWith(environment: Record<string, string>): { peer: Peer; databaseMicros: () => number } {
  let used = Number.NaN;
  const peer: Peer = {
    ...taisce,
    async start(setup) {
      const postmaster = await postmasterOf(setup);
      const before = familyMicros(postmaster);
      const worker = await taisce.start(setup, { environment });
      return {
        ...worker,
        async stop() {
          await worker.stop();
          used = familyMicros(postmaster) - before;
        },
      };
    },
  };
  return { peer, databaseMicros: () => used };
}

/** The server's first process, where it runs on this machine. */
async function postmasterOf({ database: { client } }: Setup): Promise<number> {
  const { rows } = await client.query("SHOW data_directory");
  try {
    return Number(readFileSync(join(rows[0].data_directory, "postmaster.pid"), "utf8").split("\n")[0]);
  } catch {
    return Number.NaN;
  }
}
