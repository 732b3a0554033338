// The reference: a trigger writes the deliveries and notifies, a worker takes, posts and records them. It is
// not a product, only the least that could do the job; see its worker.
import { startWorker } from "./child.ts";
import { type Peer, prepareTables } from "./peer.ts";

export const reference: Peer = {
  name: "reference",
  tuning: "two loops of 512 deliveries; no retries, no recovery, no checks",

  async prepare(setup) {
    await prepareTables(setup);
    await setup.database.client.query(`
      CREATE SCHEMA reference;
      CREATE TABLE reference.delivery (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, endpoint integer NOT NULL,
        formed_through bigint NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), claimed_at timestamptz,
        delivered_at timestamptz, UNIQUE (endpoint, formed_through));
      CREATE INDEX ON reference.delivery (id) WHERE claimed_at IS NULL;
      CREATE FUNCTION reference.tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO reference.delivery (endpoint, formed_through)
          SELECT number, NEW.formed_through FROM bench.endpoint WHERE scope = NEW.scope;
        NOTIFY reference;
        RETURN NULL;
      END $$;
      CREATE TRIGGER tell AFTER UPDATE ON bench.watermark FOR EACH ROW EXECUTE FUNCTION reference.tell()`);
  },

  async owe({ database: { client } }, each) {
    await client.query(
      `INSERT INTO reference.delivery (endpoint, formed_through)
       SELECT e.number, n FROM generate_series(0, $1::integer - 1) n CROSS JOIN bench.endpoint e ORDER BY n, e.number`,
      [each],
    );
    await client.query("VACUUM (ANALYZE) reference.delivery");
  },

  start: (setup) => startWorker("reference", setup, "run"),

  advance: (_setup, scope, offset) => ({
    name: "advance",
    text: "UPDATE bench.watermark SET formed_through = $2, stored_through = $2 WHERE scope = $1",
    values: [scope, offset],
  }),
};
