// A connection for the length of one command, by the same settings as the service.
import { SQLSTATE, sqlState } from "../database/sqlstate.ts";
import { type Connection, connect } from "../service/connection.ts";
import { readSettings } from "../settings/settings.ts";
import { CommandError } from "./command.ts";

/** @throws CommandError where the database has no schema yet. */
export async function withConnection<Value>(
  environment: NodeJS.ProcessEnv,
  work: (connection: Connection) => Promise<Value>,
): Promise<Value> {
  const settings = readSettings(environment);
  const connection = await connect({ ...settings, pool: 2 }, { migrate: "embedded" });
  try {
    return await work(connection);
  } catch (error) {
    const state = sqlState(error);
    if (state !== SQLSTATE.undefinedTable && state !== SQLSTATE.undefinedSchema) throw error;
    throw new CommandError(
      `the database has no schema "${settings.namespace}" of this service yet; run migrate first`,
    );
  } finally {
    await connection.close();
  }
}
