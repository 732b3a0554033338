// One line for people about whatever a command failed with. A connection string never gets into it.
import { CredentialError } from "../credentials/credentials.ts";
import { DatabaseUnavailable } from "../database/database.ts";
import { EmbeddedPostgresError } from "../database/embedded.ts";
import { SchemaMismatch } from "../database/migrate.ts";
import { SQLSTATE, sqlState } from "../database/sqlstate.ts";
import { FormationError } from "../formation/formation.ts";
import { LedgerError } from "../ledger/ledger.ts";
import { ProjectError } from "../projects/projects.ts";
import { ListenError } from "../service/http-server.ts";
import { SettingsError } from "../settings/settings.ts";
import { CommandError } from "./command.ts";

/** Errors whose message was written for the person at the terminal. */
const SPEAKING = [
  CommandError,
  CredentialError,
  EmbeddedPostgresError,
  FormationError,
  LedgerError,
  ListenError,
  ProjectError,
  SchemaMismatch,
  SettingsError,
];

export function describeFailure(error: unknown): string {
  if (SPEAKING.some((kind) => error instanceof kind)) return (error as Error).message;
  const cause = error instanceof DatabaseUnavailable ? error.cause : error;
  const code = (cause as { code?: unknown } | undefined)?.code;
  if (isConnectionProblem(cause, code)) {
    return `cannot reach PostgreSQL (${String(code ?? "no answer in time")}); check DATABASE_URL and that the server runs`;
  }
  const state = sqlState(cause);
  if (state === "28P01" || state === "28000")
    return "PostgreSQL refused the user or password in DATABASE_URL";
  if (state === "3D000") return "the database named in DATABASE_URL does not exist; create it first";
  if (state === SQLSTATE.insufficientPrivilege) {
    return `${(cause as Error).message}: the user in DATABASE_URL lacks this right; run migrate as the schema's owner`;
  }
  return (cause instanceof Error ? cause.message : String(cause)).split("\n")[0] ?? "failed";
}

function isConnectionProblem(cause: unknown, code: unknown): boolean {
  if (typeof code === "string" && /^(ECONN|ENOTFOUND|EAI_|EHOST|ENET|ETIMEDOUT|EPIPE|57P)/.test(code))
    return true;
  return (
    cause instanceof AggregateError || (cause instanceof Error && /timeout|terminated/.test(cause.message))
  );
}
