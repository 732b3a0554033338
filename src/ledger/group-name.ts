// A group's name, the target and endpoint it is as `group:<name>`, and which groups an operator permits.

/** Contract section 11. */
export const GROUP_NAME_PATTERN = /^[a-z][a-z0-9_-]{0,62}$/;

const PREFIX = "group:";

/** What a group is in the ledger and as an endpoint: `group:<name>`. */
export function groupTarget(name: string): string {
  return `${PREFIX}${name}`;
}

/** The url of a group's endpoint, whose column holds eight characters at least: a name of one is escaped. */
export function groupUrl(name: string): string {
  return groupTarget(name.length > 1 ? name : `%${name.charCodeAt(0).toString(16)}`);
}

/** Whether this is meant to name a group, rightly or wrongly. */
export function namesGroup(text: string): boolean {
  return /^group:/i.test(text);
}

/** The name in `group:<name>`; undefined where it is none. */
export function groupNameIn(target: string): string | undefined {
  const name = target.startsWith(PREFIX) ? target.slice(PREFIX.length) : "";
  return GROUP_NAME_PATTERN.test(name) ? name : undefined;
}

/** The groups that projects may hand off to, as the operator lists them. */
export class PermittedGroups {
  readonly #names: ReadonlySet<string>;
  readonly #all: boolean;

  /** `*` among the names stands for every group. */
  constructor(names: Iterable<string>) {
    this.#names = new Set(names);
    this.#all = this.#names.has("*");
  }

  get empty(): boolean {
    return this.#names.size === 0;
  }

  permits(name: string): boolean {
    return GROUP_NAME_PATTERN.test(name) && (this.#all || this.#names.has(name));
  }

  /** As targets; undefined where all are permitted. */
  get targets(): string[] | undefined {
    return this.#all ? undefined : Array.from(this.#names, groupTarget);
  }
}
