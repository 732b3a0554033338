-- Projects, the credentials that speak for them, and the record of who did what.

CREATE TABLE {schema}.project (
    scope        text        PRIMARY KEY CHECK (scope ~ '^[a-z][a-z0-9_]{0,62}$'),
    label        text        CHECK (octet_length(label) <= 200),
    created_at   timestamptz NOT NULL DEFAULT now(),
    -- While set, the project's credentials are refused. Formation and what is already owed go on.
    suspended_at timestamptz
);

CREATE TABLE {schema}.credential (
    credential_id uuid        PRIMARY KEY,
    scope         text        NOT NULL REFERENCES {schema}.project (scope) ON DELETE CASCADE,
    name          text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    access        text        NOT NULL CHECK (access IN ('read-write', 'read-only')),
    -- The token itself is shown once and never stored.
    token_sha256  bytea       NOT NULL UNIQUE CHECK (octet_length(token_sha256) = 32),
    created_at    timestamptz NOT NULL DEFAULT now(),
    revoked_at    timestamptz
);

CREATE INDEX credential_scope_idx ON {schema}.credential (scope, created_at);

-- Who did what, for good. Rows outlive the project, the credential and the endpoint they name, so
-- nothing here is a foreign key.
CREATE TABLE {schema}.audit_entry (
    entry_id    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    operation   text        NOT NULL CHECK (octet_length(operation) BETWEEN 1 AND 64),
    -- The credential's id; null where none was recognised.
    principal   uuid,
    project     text,
    outcome     text        NOT NULL CHECK (outcome IN ('allowed', 'refused')),
    -- How many rows the call touched.
    magnitude   integer     NOT NULL DEFAULT 0 CHECK (magnitude >= 0),
    endpoint_id uuid
);

CREATE INDEX audit_entry_project_idx ON {schema}.audit_entry (project, entry_id);

CREATE FUNCTION {schema}.audit_entry_is_append_only() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit_entry is append-only: % is refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

-- Per statement, so that one that meets no row is refused as well; per row, for what reaches the table
-- through a parent. ALWAYS: session_replication_role = replica does not open a way around either.
CREATE TRIGGER audit_entry_no_statement BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.audit_entry
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.audit_entry_is_append_only();
ALTER TABLE {schema}.audit_entry ENABLE ALWAYS TRIGGER audit_entry_no_statement;
CREATE TRIGGER audit_entry_no_change BEFORE UPDATE OR DELETE ON {schema}.audit_entry
    FOR EACH ROW EXECUTE FUNCTION {schema}.audit_entry_is_append_only();
ALTER TABLE {schema}.audit_entry ENABLE ALWAYS TRIGGER audit_entry_no_change;
