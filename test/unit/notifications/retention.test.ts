// When deliveries past their retention are deleted.
import { describe, expect, it } from "vitest";
import { Retention } from "../../../src/notifications/retention.ts";
import { quietLog } from "../../support/quiet.ts";
import { until } from "../../support/until.ts";

describe("retention", () => {
  it("deletes batch after batch while they are full, then waits, and goes on after an error", async () => {
    const answers: (number | Error)[] = [1_000, 1_000, 7, new Error("no connection"), 3];
    let asked = 0;
    const retention = new Retention({
      deliveries: {
        expire: async (_retentionMs, limit) => {
          expect(limit).toBe(1_000);
          const answer = answers[asked++] ?? 0;
          if (answer instanceof Error) throw answer;
          return answer;
        },
      },
      retentionMs: 1,
      log: quietLog,
      everyMs: 5,
    });
    retention.start();
    await until("all answers", () => asked >= answers.length);
    await retention.stop();
    const { length } = answers;
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(asked).toBeLessThanOrEqual(length + 2);
  });
});
