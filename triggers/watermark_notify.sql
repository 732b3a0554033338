-- Fires the signal: one NOTIFY for each advance of formed_through in a project with a live endpoint, be that
-- an HTTPS URL or a group. Nobody else waits for an advance: readers of a group wait for what is handed to it,
-- and that is told on a channel of its own by whoever hands it over.
-- Replaced whole whenever this file or the channel changes.
--
-- Failure policy: fail open. A signal is a hint, and the reconciler finds what a missing one missed;
-- nothing in here may fail, slow or roll back the writer. (What PostgreSQL itself refuses at COMMIT is out
-- of its hands: NOTIFY with a full queue, or in a prepared transaction.) So the function runs with its owner's rights
-- (the writer may have none here), resolves every name by itself, and computes in numeric, where the
-- largest bigint does not overflow. A project without endpoints takes no NOTIFY and so never waits for
-- the lock that orders notifying commits.

CREATE OR REPLACE FUNCTION {schema}.watermark_notify() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before bigint;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        before := OLD.formed_through;
    END IF;
    -- Index notification_endpoint_scope_idx.
    PERFORM FROM {schema}.notification_endpoint e WHERE e.scope = NEW.scope AND e.disabled_at IS NULL LIMIT 1;
    IF FOUND THEN
        PERFORM pg_notify({channel}, format(
            '{"scope":"%s","formed_through":%s,"stored_through":%s,"formed_turns":%s,"parked_turns":%s}',
            NEW.scope, NEW.formed_through, COALESCE(NEW.stored_through, NEW.formed_through),
            LEAST(NEW.formed_through::numeric - COALESCE(before, -1), 2147483647), NEW.parked_turns));
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'signal not sent, the reconciler will find the advance: %', SQLERRM;
    RETURN NULL;
END
$$;
-- Or anyone could put it on a table of his own and have a cast of his own run with the owner's rights.
REVOKE ALL ON FUNCTION {schema}.watermark_notify() FROM PUBLIC;

CREATE OR REPLACE TRIGGER watermark_notify_insert AFTER INSERT ON {schema}.watermark
    FOR EACH ROW WHEN (NEW.formed_through IS NOT NULL)
    EXECUTE FUNCTION {schema}.watermark_notify();

CREATE OR REPLACE TRIGGER watermark_notify_update AFTER UPDATE ON {schema}.watermark
    FOR EACH ROW WHEN (NEW.formed_through IS NOT NULL
                       AND (OLD.formed_through IS NULL OR NEW.formed_through > OLD.formed_through))
    EXECUTE FUNCTION {schema}.watermark_notify();
