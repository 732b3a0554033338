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
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // After the name, which may hold anything, in brackets: user and system time are the 14th and 15th field.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    return Number.NaN;
  }
}
