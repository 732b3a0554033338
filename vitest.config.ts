import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/global-setup.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Two cores: more files at once only makes the timing of real sockets and processes worse.
    maxWorkers: 2,
    reporters: ["default"],
  },
});
