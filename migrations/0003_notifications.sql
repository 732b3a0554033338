-- Who asked to be told, and what they are owed.

-- Time-ordered ids (UUID version 7, RFC 9562), so that new rows of the busiest table land on the same
-- index pages. PostgreSQL has a function of its own only from version 18 on. A body of this form is
-- resolved when it is created: set_bit(bytea, integer, integer) in a schema on the caller's search_path
-- would be the better match for what is called here.
CREATE FUNCTION {schema}.new_delivery_id() RETURNS uuid VOLATILE PARALLEL SAFE
    -- Version 4 with its first six bytes replaced by the milliseconds; bits 52 and 53 make the 4 a 7.
    RETURN encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid;

CREATE TABLE {schema}.notification_endpoint (
    endpoint_id     uuid        PRIMARY KEY,
    scope           text        NOT NULL REFERENCES {schema}.project (scope) ON DELETE CASCADE,
    url             text        NOT NULL CHECK (octet_length(url) BETWEEN 8 AND 2048),
    -- The HMAC key, kept as it is because a digest cannot sign. It proves this service to the
    -- receiver and opens nothing here.
    secret          bytea       NOT NULL CHECK (octet_length(secret) = 32),
    created_at      timestamptz NOT NULL DEFAULT now(),
    disabled_at     timestamptz,
    -- formed_through when it was registered: only what comes after is owed to it.
    registered_from bigint,
    -- 'latest': older pending deliveries are superseded as soon as newer news is owed.
    deliver         text        NOT NULL DEFAULT 'every' CHECK (deliver IN ('every', 'latest')),
    UNIQUE (scope, url)
);

-- The live endpoints of a project: the trigger's question at every advance, and the owing statement's.
CREATE INDEX notification_endpoint_scope_idx
    ON {schema}.notification_endpoint (scope) WHERE disabled_at IS NULL;

CREATE TABLE {schema}.notification_delivery (
    delivery_id     uuid        PRIMARY KEY,
    scope           text        NOT NULL,
    endpoint_id     uuid        NOT NULL REFERENCES {schema}.notification_endpoint (endpoint_id) ON DELETE CASCADE,
    formed_through  bigint      NOT NULL,
    stored_through  bigint      NOT NULL,
    formed_turns    integer     NOT NULL DEFAULT 0,
    parked_turns    integer     NOT NULL DEFAULT 0,
    -- Requests started.
    attempts        integer     NOT NULL DEFAULT 0,
    -- When it may be tried next; while it is claimed, when the claim's lease ends.
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    delivered_at    timestamptz,
    parked_at       timestamptz,
    last_status     integer,
    last_error      text        CHECK (last_error IS NULL OR octet_length(last_error) <= 512),
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Its third end: newer news took its place, or its endpoint was disabled. next_attempt_at is then
    -- infinity, so that scans for what is due never meet it.
    superseded_at   timestamptz,
    -- When the watermark advanced, as every attempt's body says.
    occurred_at     timestamptz NOT NULL DEFAULT now(),
    -- The fencing token: counts claims and never goes back, so that an outcome is recorded only by
    -- the claim that still holds the row.
    lease           integer     NOT NULL DEFAULT 0,
    -- Set while a claim holds the row.
    claimed_at      timestamptz,
    UNIQUE (endpoint_id, formed_through),
    CONSTRAINT notification_delivery_one_end CHECK (num_nonnulls(delivered_at, parked_at, superseded_at) <= 1),
    -- The fixed list of categories: no address, name or raw error can get in.
    CONSTRAINT notification_delivery_last_error_category CHECK (
        last_error IN ('destination not permitted', 'address not permitted', 'redirect not followed',
                       'timeout', 'connection refused', 'tls failure', 'network error', 'unrecorded')
        OR last_error ~ '^destination answered (429|[5-9][0-9]{2})$'
        OR last_error ~ '^destination refused with 4([013-9][0-9]|2[0-8])$')
);

-- What is due, oldest first; it also tells the sweeper when to wake.
CREATE INDEX notification_delivery_due_idx
    ON {schema}.notification_delivery (next_attempt_at, delivery_id)
    WHERE delivered_at IS NULL AND parked_at IS NULL;

-- What is due to one endpoint: claims take a little from each endpoint rather than the oldest overall.
-- The engine's statements write "pending" in just these words, so that the index above, which looks free
-- to a planner whose statistics are from a quiet day, cannot be chosen for them when a backlog appears.
CREATE INDEX notification_delivery_endpoint_due_idx
    ON {schema}.notification_delivery (endpoint_id, next_attempt_at)
    WHERE num_nonnulls(delivered_at, parked_at, superseded_at) = 0;

CREATE INDEX notification_delivery_scope_idx
    ON {schema}.notification_delivery (scope, created_at DESC);

-- The rarer ends, for who lists them: without these a page of them reads a project's whole history.
CREATE INDEX notification_delivery_parked_idx
    ON {schema}.notification_delivery (scope, created_at DESC, delivery_id DESC) WHERE parked_at IS NOT NULL;
CREATE INDEX notification_delivery_superseded_idx
    ON {schema}.notification_delivery (scope, created_at DESC, delivery_id DESC) WHERE superseded_at IS NOT NULL;
