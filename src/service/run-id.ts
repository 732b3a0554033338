// Names this run of this process: the `run_id` of what it writes to the ledger by itself.
import { newLedgerId, OWN_RUN } from "../ledger/ledger.ts";

export const RUN_ID = `${OWN_RUN}${newLedgerId()}`;
