// undici alone, without a database: the ceiling of whatever sends one POST a delivery from one process.
import { startWorker } from "./child.ts";
import type { Peer } from "./peer.ts";

let owed = 0;

export const undici: Peer = {
  name: "undici",
  tuning:
    "a Pool and a dispatch handler, one body and signature made once: no database, nothing but the sends",
  prepare: async () => {},
  async owe(setup, each) {
    owed = each * setup.endpoints.length;
  },
  start: (setup) => startWorker("undici", setup, "run", { count: owed }),
  advance: () => {
    throw new Error("undici alone has no watermark");
  },
};
