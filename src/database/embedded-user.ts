// Which user the embedded PostgreSQL runs as: PostgreSQL refuses to run as root, so under root it gets
// an unprivileged account that exists on every Linux machine.
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { userInfo } from "node:os";

export interface Account {
  uid: number;
  gid: number;
}

/** The account to switch to, or undefined where this process already is an ordinary user. */
export function serverAccount(existingDirectory: string): Account | undefined {
  if (process.platform === "win32" || userInfo().uid !== 0) return undefined;
  try {
    // Data from an earlier start stays with the account that made it.
    const { uid, gid } = statSync(existingDirectory);
    if (uid !== 0) return { uid, gid };
  } catch {
    // First start: no directory yet.
  }
  for (const name of ["postgres", "nobody"]) {
    try {
      const [uid, gid] = (["-u", "-g"] as const).map((flag) =>
        Number.parseInt(execFileSync("id", [flag, name], { encoding: "utf8", stdio: "pipe" }), 10),
      );
      if (uid !== undefined && gid !== undefined && uid > 0) return { uid, gid };
    } catch {
      // No such account; the next one.
    }
  }
  throw new Error(
    "PostgreSQL does not run as root, and this machine has neither a postgres nor a nobody account to run it as",
  );
}
