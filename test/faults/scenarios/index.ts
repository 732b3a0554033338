// Every scenario, in the order in which a round plays them.
import type { Scenario } from "../stage.ts";
import { linkScenarios } from "./links.ts";
import { processScenarios } from "./processes.ts";
import { sessionScenarios } from "./sessions.ts";

export const scenarios: Scenario[] = [...processScenarios, ...sessionScenarios, ...linkScenarios];
