-- An endpoint that wants the latest only gets a new row with each advance, and the row before it ends as superseded.
-- What that row had been through is carried on, or an endpoint that is down would be tried anew with each advance.
ALTER TABLE {schema}.notification_delivery
    -- Without a CHECK, for which the table would be read under its lock.
    ADD COLUMN carried_attempts integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN {schema}.notification_delivery.carried_attempts IS
    'Requests that failed for the rows this one took the place of: they count towards its waits and its parking.';
