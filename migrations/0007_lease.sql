-- The lease of a claim in a column of its own, which no index holds. In next_attempt_at it was a key of two
-- indexes, so every claim wrote an entry into all five that a pending row has. A claim now changes the
-- row where it lies, a HOT update. For that each page keeps half of itself free: a claim takes whole pages of
-- rows that were owed together.
-- The column is named anew rather than added: a process of the version before could otherwise not tell a
-- claimed row from a due one, and would send what is being sent. Its statements fail until it is replaced.
ALTER TABLE {schema}.notification_delivery RENAME COLUMN claimed_at TO lease_until;
UPDATE {schema}.notification_delivery SET lease_until = next_attempt_at
    -- In the words of notification_delivery_endpoint_due_idx: only pending rows are claimed, and there may be a long history.
    WHERE lease_until IS NOT NULL AND num_nonnulls(delivered_at, parked_at, superseded_at) = 0;
ALTER TABLE {schema}.notification_delivery SET (fillfactor = 50);
COMMENT ON COLUMN {schema}.notification_delivery.lease_until IS
    'Set while a claim holds the row: when its lease ends. In no index, so that a claim is a HOT update.';
COMMENT ON COLUMN {schema}.notification_delivery.next_attempt_at IS
    'From when on it may be tried; a claim leaves it alone. Infinity once it is superseded.';
