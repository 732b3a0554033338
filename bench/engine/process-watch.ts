// What a process holds: descriptors and memory, as the kernel sees them. Linux only; zeros elsewhere.
import { readdirSync, readFileSync } from "node:fs";

export interface Held {
  descriptors: number;
  megabytes: number;
}

export function held(pid: number): Held {
  try {
    const resident = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return { descriptors: readdirSync(`/proc/${pid}/fd`).length, megabytes: Number(resident ?? 0) / 1_024 };
  } catch {
    return { descriptors: 0, megabytes: 0 };
  }
}

/** Looks ten times a second until stopped; the most of each. */
export function watch(pid: number): () => Held {
  const most: Held = { descriptors: 0, megabytes: 0 };
  const timer = setInterval(() => {
    const now = held(pid);
    most.descriptors = Math.max(most.descriptors, now.descriptors);
    most.megabytes = Math.max(most.megabytes, now.megabytes);
  }, 100);
  return () => {
    clearInterval(timer);
    return most;
  };
}

/** Processor time it has used, all threads, in microseconds; to a hundredth of a second. */
export function processorMicros(pid: number): number {
  const fields = statOf(pid);
  return (Number(fields?.[11]) + Number(fields?.[12])) * 10_000;
}

/** Likewise of a process and all its children, those that have ended included. */
export function familyMicros(pid: number): number {
  const fields = statOf(pid);
  const ended = (Number(fields?.[13]) + Number(fields?.[14])) * 10_000;
  const children = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && statOf(Number(name))?.[1] === String(pid))
    .reduce((sum, child) => sum + (processorMicros(Number(child)) || 0), 0);
  return processorMicros(pid) + ended + children;
}

/** Processor time that all cores were not idle, since the machine started; it may have been anyone. */
export function busyMicros(): number {
  const fields =
    readFileSync("/proc/stat", "utf8").split("\n")[0]?.trim().split(/\s+/).slice(1, 9).map(Number) ?? [];
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = fields;
  return (user + nice + system + irq + softirq + steal) * 10_000;
}

/** What /proc says of it from its third field on: those after its name, which may hold anything, in brackets. */
function statOf(pid: number): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined;
  }
}
