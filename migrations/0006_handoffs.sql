-- Handoffs: what is handed to a group, in the order in which its readers take it.

-- The group that an endpoint hands off to; null where it is an HTTPS URL. A column of its own, because a
-- url has eight characters at least and `group:a` has seven.
ALTER TABLE {schema}.notification_endpoint
    ADD COLUMN group_target text CHECK (group_target ~ '^group:[a-z][a-z0-9_-]{0,62}$');

-- The live group endpoints, which are compared with their projects' watermarks apart from the others.
CREATE INDEX notification_endpoint_group_idx
    ON {schema}.notification_endpoint (scope) WHERE group_target IS NOT NULL AND disabled_at IS NULL;

-- One row a group that was ever handed something. Whoever hands over raises last_position first and so holds
-- the row until the commit: positions are seen in their order, none turns up below one that was seen.
CREATE TABLE {schema}.handoff_group (
    project        text   NOT NULL,
    target         text   NOT NULL CHECK (target ~ '^group:[a-z][a-z0-9_-]{0,62}$'),
    last_position  bigint NOT NULL CHECK (last_position > 0),
    -- The newest watermark handed over, and the one before the statement that wrote it.
    formed_through bigint,
    formed_before  bigint,
    PRIMARY KEY (project, target)
-- As with the watermark: room on the page for updates in place.
) WITH (fillfactor = 50);

-- Where in its group a handoff of the ledger stands, and what it carries. Who deletes old rows of the ledger
-- deletes these with them.
CREATE TABLE {schema}.handoff (
    project     text   NOT NULL,
    target      text   NOT NULL,
    position    bigint NOT NULL,
    delivery_id text   NOT NULL UNIQUE REFERENCES {schema}.deliveries (id) ON DELETE CASCADE,
    -- JSON as text, so that its integers stay exact; null where there is none.
    variables   text,
    PRIMARY KEY (project, target, position)
);
