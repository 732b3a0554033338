-- The ledger of sends and handoffs: one row for each that a target took, ever. Its times are RFC 3339
-- UTC text and its ids sortable text, so that rows can be compared and copied anywhere as they stand.

CREATE TABLE {schema}.deliveries (
    id             text PRIMARY KEY,
    identity_id    text NOT NULL,
    target         text NOT NULL,
    scope          text NOT NULL DEFAULT '',
    idempotency    text NOT NULL,
    run_id         text NOT NULL,
    created_at     text NOT NULL,
    status         text NOT NULL DEFAULT 'accepted'
                   CHECK (status IN ('accepted', 'sent', 'confirmed', 'contradicted', 'unconfirmed', 'settled')),
    sent_at        text,
    variables_hash text NOT NULL DEFAULT '',
    -- Whose it is; it outlives the project, so it is no foreign key.
    project        text NOT NULL,
    UNIQUE (target, scope, idempotency)
);
