// Preloaded into a replica with `--import`: its wall clock is FAULTS_CLOCK_SHIFT_MS off, in everything that
// JavaScript can ask. Durations (`performance.now`, timers) go on as they were, as under a wrong clock.
const shift = Number(process.env.FAULTS_CLOCK_SHIFT_MS ?? 0);
const RealDate = Date;
const now = () => RealDate.now() + shift;

globalThis.Date = new Proxy(RealDate, {
  construct: (target, values, newTarget) =>
    Reflect.construct(target, values.length === 0 ? [now()] : values, newTarget),
  apply: () => new RealDate(now()).toString(),
  get: (target, name, receiver) => (name === "now" ? now : Reflect.get(target, name, receiver)),
});

const { timeOrigin } = performance;
Object.defineProperty(performance, "timeOrigin", { get: () => timeOrigin + shift });
