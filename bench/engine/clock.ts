// Microseconds on the machine's monotonic clock, which all processes on it share.

export const micros = (): number => Number(process.hrtime.bigint() / 100n) / 10;
