// What goes wrong again and again is logged at its start and then ever more rarely.

/** Whether the `count`th time in a row is worth a line: the 1st, 2nd, 4th, 8th … */
export function worthALine(count: number): boolean {
  return Number.isInteger(Math.log2(count));
}
