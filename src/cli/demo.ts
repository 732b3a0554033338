import type { Invocation, Result } from "./command.ts";
export async function runDemo(_: Invocation): Promise<Result | undefined> {
  throw new Error("not yet");
}
