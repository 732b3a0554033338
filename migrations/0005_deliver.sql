-- What the ledger of 0004 needs once it is written to: times that are times, which status may follow which,
-- indexes for its reads, and the claims of sends that are under way.

ALTER TABLE {schema}.deliveries
    ADD CONSTRAINT deliveries_created_at_rfc3339 CHECK (created_at ~
        '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?Z$'),
    ADD CONSTRAINT deliveries_sent_at_rfc3339 CHECK (sent_at ~
        '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?Z$'),
    -- Only an attestation says when something was really sent.
    ADD CONSTRAINT deliveries_sent_at_attested CHECK (
        sent_at IS NULL OR status IN ('sent', 'confirmed', 'contradicted'));

-- A project's rows, newest first: the list. Every row has an entry, so it is the one index of this kind.
CREATE INDEX deliveries_project_idx ON {schema}.deliveries (project, created_at DESC, id DESC);
-- What is not plainly accepted, above all what is held.
CREATE INDEX deliveries_status_idx ON {schema}.deliveries (project, status, created_at DESC, id DESC)
    WHERE status <> 'accepted';
-- By run and by whom it was about, without the notifications: they are most of the rows, their identity is
-- the project itself, and an entry of each would be paid for on the path of every one of them.
CREATE INDEX deliveries_run_idx ON {schema}.deliveries (project, run_id, created_at DESC, id DESC)
    WHERE target <> 'https/notification';
CREATE INDEX deliveries_identity_idx ON {schema}.deliveries (project, identity_id, created_at DESC, id DESC)
    WHERE target <> 'https/notification';

-- Which status may follow which (docs/ledger.md). "accepted" follows an attestation only as a new send of
-- other variables, which has an id of its own.
CREATE FUNCTION {schema}.deliveries_status_follows() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (CASE NEW.status
           WHEN 'accepted' THEN OLD.status = 'unconfirmed' OR NEW.id <> OLD.id
           WHEN 'sent' THEN OLD.status IN ('accepted', 'settled')
           WHEN 'confirmed' THEN OLD.status IN ('accepted', 'settled', 'sent', 'contradicted')
           WHEN 'contradicted' THEN OLD.status IN ('accepted', 'settled', 'sent', 'confirmed')
           WHEN 'settled' THEN OLD.status = 'unconfirmed'
           ELSE false
       END) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'a delivery that is % cannot become %', OLD.status, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'deliveries_status_follows';
END
$$;

CREATE TRIGGER deliveries_status_follows BEFORE UPDATE OF status ON {schema}.deliveries
    FOR EACH ROW WHEN (OLD.status <> NEW.status)
    EXECUTE FUNCTION {schema}.deliveries_status_follows();

-- 'native': its receiver updates in place, so that it can be sent again without harm.
ALTER TABLE {schema}.notification_endpoint
    ADD COLUMN idempotency text NOT NULL DEFAULT 'none' CHECK (idempotency IN ('none', 'native'));

-- Sends under way, one row each, written before the request leaves and gone with its outcome. What is still
-- here when its lease has ended was in flight when its process died: it becomes an unconfirmed row of the
-- ledger, or is sent again where that does no harm.
CREATE TABLE {schema}.delivery_claim (
    target         text        NOT NULL,
    scope          text        NOT NULL,
    idempotency    text        NOT NULL,
    -- The columns of the row it will become.
    id             text        NOT NULL UNIQUE,
    identity_id    text        NOT NULL,
    run_id         text        NOT NULL,
    created_at     text        NOT NULL,
    variables_hash text        NOT NULL,
    project        text        NOT NULL,
    -- What is sent again by whoever finds the lease ended; null where that must not be.
    body           text,
    -- The fencing token: counts claims, so that an outcome is recorded only by the claim that holds the row.
    lease          integer     NOT NULL DEFAULT 1,
    expires_at     timestamptz NOT NULL,
    PRIMARY KEY (target, scope, idempotency)
);

CREATE INDEX delivery_claim_expires_idx ON {schema}.delivery_claim (expires_at);
