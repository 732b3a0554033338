// Broken promises by kind, with the first few that broke each.

const SHOWN = 3;

export class Findings {
  readonly #kinds = new Map<string, string[]>();

  add(kind: string, which: string): void {
    const known = this.#kinds.get(kind) ?? [];
    known.push(which);
    this.#kinds.set(kind, known);
  }

  sentences(): string[] {
    return Array.from(this.#kinds, ([kind, which]) => {
      const shown = which.slice(0, SHOWN).join(", ");
      return `${kind}: ${which.length} (${shown}${which.length > SHOWN ? ", …" : ""})`;
    });
  }
}
