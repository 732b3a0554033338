// The three Reflect functions that tsyringe, under @peculiar/x509, insists on when it loads. Import this
// before @peculiar/x509. They stand in for the reflect-metadata package; none is replaced where it exists.

type Metadata = Map<unknown, unknown>;

interface ReflectMetadata {
  getMetadata?: (key: unknown, target: object) => unknown;
  getOwnMetadata?: (key: unknown, target: object) => unknown;
  defineMetadata?: (key: unknown, value: unknown, target: object) => void;
}

const reflect = Reflect as ReflectMetadata;
const stored = new WeakMap<object, Metadata>();

reflect.getOwnMetadata ??= (key, target) => stored.get(target)?.get(key);

reflect.getMetadata ??= (key, target) => {
  for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at)) {
    const found = stored.get(at);
    if (found?.has(key)) return found.get(key);
  }
  return undefined;
};

reflect.defineMetadata ??= (key, value, target) => {
  const found: Metadata = stored.get(target) ?? new Map();
  stored.set(target, found.set(key, value));
};
