// What an accepted notification's row in the ledger costs: the drain with it and without it, in deliveries a
// second, and in processor time, which a busy machine disturbs less.
import type { Setup } from "../peers/peer.ts";
import { taisce } from "../peers/taisce.ts";
import { drainOnce } from "./drain.ts";
import type { Measure } from "./measure.ts";

const WITHOUT = "ledger off";

export const ledger: Measure = {
  name: "ledger",
  title: "cost of the ledger, draining",
  yardstick: WITHOUT,
  columns: [
    { figure: "perSecond", title: "deliveries/s", digits: 0, better: "more" },
    { figure: "workerMicros", title: "CPU µs each: worker", digits: 0, better: "less" },
    { figure: "databaseMicros", title: "PostgreSQL", digits: 0, better: "less" },
  ],
  async *run(context) {
    for (const count of [1, 100]) {
      for (const word of ["off", "on"]) {
        const environment = { TAISCE_LEDGER_NOTIFICATIONS: word };
        const peer = { ...taisce, start: (setup: Setup) => taisce.start(setup, { environment }) };
        const condition = `${count} endpoint${count === 1 ? "" : "s"}`;
        const sample = await drainOnce(context, peer, count, `${condition}, ledger ${word}`);
        // Compared with each other, so they stand where contenders do elsewhere.
        yield { ...sample, measure: "ledger", condition, peer: WITHOUT.replace("off", word) };
      }
    }
  },
};
