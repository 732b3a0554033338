// Faults of the server and of the links to it: restarts, half-open connections, black holes, resets, delay.
import { arrivalsDuring, hearingAgain } from "../recovery.ts";
import type { Scenario } from "../stage.ts";
import { RECONCILE_MS } from "../world.ts";

const RESTART_LIMIT_MS = 5_000;
const BLACK_HOLE_LIMIT_MS = 16_000;
/** On top of what polling takes by itself: rounds, sends, and a busy machine. */
const POLLING_SLACK_MS = 5_000;

const restart = (mode: "fast" | "immediate"): Scenario => ({
  name: `restart-${mode}`,
  shows: `pg_ctl restart -m ${mode}, about every seven seconds: all hear again within 5 s of the server's return`,
  async run(stage) {
    while (stage.goesOn) {
      const since = await stage.fault("all", async () => {
        // Written while the server is down, so that they commit in the first moments after: most likely
        // before anybody listens, where only a comparison can find them.
        const words = [50, 60, 70].map((ms) => stage.sleep(ms).then(() => stage.lastWord()));
        await stage.world.cluster.restart(mode);
        const up = performance.now();
        await Promise.all(words);
        return up;
      });
      const took = await hearingAgain(stage.world.replicas, since);
      stage.recovered(took, RESTART_LIMIT_MS, "hearing again after a restart");
      await stage.sleep(4_000);
    }
  },
});

const halfOpen: Scenario = {
  name: "half-open",
  shows:
    "every open connection falls silent, new ones pass: deliveries flow and all listeners hear again within 16 s",
  async run(stage) {
    const { replicas } = stage.world;
    while (stage.goesOn) {
      const since = performance.now();
      const took = await stage.fault("all", async () => {
        for (const { link } of replicas) link.silence({ newOnes: "pass" });
        const word = await stage.lastWord();
        const [heard, told] = await Promise.all([
          hearingAgain(replicas, since),
          stage.toldWithin(word, 60_000),
        ]);
        stage.notes.push(`the first delivery after ${(told / 1_000).toFixed(1)} s`);
        // Statements hang on dead connections as well, until their time limit; then polling goes on.
        stage.promise(told <= BLACK_HOLE_LIMIT_MS, "nothing was told for 16 s on half-open links");
        return heard;
      });
      stage.recovered(took, BLACK_HOLE_LIMIT_MS, "hearing again on half-open links");
      await stage.sleep(2_000);
      // What the old connections had on their way, and their ends, arrive now.
      await stage.fault("all", async () => {
        for (const { link } of replicas) await link.heal();
        await stage.sleep(500);
      });
      await stage.sleep(2_000);
    }
  },
};

const blackHole: Scenario = {
  name: "black-hole",
  shows: "nothing passes for twelve seconds, on old connections or new ones, then all of it at once",
  async run(stage) {
    const { replicas } = stage.world;
    while (stage.goesOn) {
      const since = await stage.fault("all", async () => {
        for (const { link } of replicas) link.silence({ newOnes: "silent" });
        await stage.lastWord();
        await stage.sleep(12_000);
        for (const { link } of replicas) await link.heal();
        await stage.sleep(500);
        return performance.now() - 500;
      });
      stage.recovered(
        await hearingAgain(replicas, since),
        BLACK_HOLE_LIMIT_MS,
        "hearing again after a black hole",
      );
      await stage.sleep(2_000);
    }
  },
};

const cut: Scenario = {
  name: "cut",
  shows: "every connection reset every second or so, and refused for two seconds now and then",
  async run(stage) {
    const { replicas } = stage.world;
    for (let round = 1; stage.goesOn; round++) {
      await stage.fault("all", async () => {
        if (round % 4 === 0) {
          await Promise.all(replicas.map(({ link }) => link.refuse()));
          await stage.lastWord();
          await stage.sleep(2_000);
          await Promise.all(replicas.map(({ link }) => link.heal()));
        } else {
          for (const { link } of replicas) link.cut();
          await stage.lastWord();
        }
      });
      await stage.sleep(700 + Math.random() * 600);
    }
    const took = await hearingAgain(replicas, performance.now());
    stage.recovered(took, RESTART_LIMIT_MS, "hearing again after the cuts");
  },
};

const slow: Scenario = {
  name: "slow",
  shows: "200 ms each way between replicas and PostgreSQL: slower, and nothing arrives twice",
  everyAdvance: true,
  async run(stage) {
    const { replicas } = stage.world;
    for (const { link } of replicas) link.delayMs = 200;
    // To nobody, by the reckoning of repeats: nothing may arrive twice for it.
    await stage.fault([], async () => {
      for (const endsAt = performance.now() + stage.options.seconds * 1_000; performance.now() < endsAt; ) {
        await stage.lastWord();
        await stage.sleep(2_000);
      }
    });
    for (const { link } of replicas) await link.heal();
  },
};

const deaf: Scenario = {
  name: "deaf",
  shows:
    "the listeners' links are dead, the pools' work: polling tells everything; back to hearing within 16 s",
  listenLinks: true,
  async run(stage) {
    const { replicas } = stage.world;
    while (stage.goesOn) {
      // Half-open first: noticed by the heartbeat alone, mended by a new connection.
      const since = performance.now();
      const took = await stage.fault([], async () => {
        for (const { listenLink } of replicas) listenLink.silence({ newOnes: "pass" });
        await stage.lastWord();
        return hearingAgain(replicas, since);
      });
      stage.recovered(took, BLACK_HOLE_LIMIT_MS, "hearing again on a half-open link");
      // Then without any way back, for longer than the heartbeat takes to notice.
      for (const { listenLink } of replicas) listenLink.silence({ newOnes: "silent" });
      const arrived = await stage.fault([], () =>
        arrivalsDuring(stage, async () => {
          for (let second = 0; second < 16; second++) {
            await stage.lastWord();
            await stage.sleep(1_000);
          }
        }),
      );
      stage.promise(arrived > 0, "nothing was told while the listeners were deaf");
      stage.notes.push(`${arrived} told by polling in 16 s`);
      const healed = performance.now();
      for (const { listenLink } of replicas) {
        listenLink.cut();
        await listenLink.heal();
      }
      stage.recovered(
        await hearingAgain(replicas, healed),
        BLACK_HOLE_LIMIT_MS,
        "hearing again after a black hole",
      );
    }
    stage.longestWaitLimitMs = RECONCILE_MS + POLLING_SLACK_MS;
  },
};

export const linkScenarios = [restart("fast"), restart("immediate"), halfOpen, blackHole, cut, slow, deaf];
