-- The log of turns, the watermark over it, and the four functions a memory service calls.
--
-- The functions run with their caller's rights and a search_path of their own, so that no schema the
-- caller happens to have in front can put its operators into them.

CREATE TABLE {schema}.watermark (
    scope          text        PRIMARY KEY REFERENCES {schema}.project (scope) ON DELETE CASCADE,
    stored_through bigint      CHECK (stored_through >= 0),
    formed_through bigint      CHECK (formed_through >= 0),
    parked_turns   integer     NOT NULL DEFAULT 0 CHECK (parked_turns >= 0),
    -- When formed_through last advanced, stamped by the trigger below for every writer.
    advanced_at    timestamptz,
    CHECK (formed_through IS NULL OR stored_through IS NOT NULL AND formed_through <= stored_through)
-- One hot row a project: room on the page keeps its updates in place (HOT), since no index covers
-- what they change.
) WITH (fillfactor = 50);

-- For every writer, plain UPDATEs included: when it advanced, and that what is formed is stored.
-- Nothing in here depends on the writer's search_path.
CREATE FUNCTION {schema}.watermark_stamp() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    NEW.advanced_at := pg_catalog.now();
    NEW.stored_through := GREATEST(NEW.stored_through, NEW.formed_through);
    RETURN NEW;
END
$$;

CREATE TRIGGER watermark_stamp_insert BEFORE INSERT ON {schema}.watermark
    FOR EACH ROW WHEN (NEW.formed_through IS NOT NULL)
    EXECUTE FUNCTION {schema}.watermark_stamp();
CREATE TRIGGER watermark_stamp_update BEFORE UPDATE ON {schema}.watermark
    FOR EACH ROW WHEN (NEW.formed_through IS NOT NULL
                       AND (OLD.formed_through IS NULL OR NEW.formed_through > OLD.formed_through))
    EXECUTE FUNCTION {schema}.watermark_stamp();

-- One row a turn: that it exists and what became of it. Its content lives with the memory service.
CREATE TABLE {schema}.turn (
    scope      text        NOT NULL REFERENCES {schema}.project (scope) ON DELETE CASCADE,
    log_offset bigint      NOT NULL CHECK (log_offset >= 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    formed_at  timestamptz,
    parked_at  timestamptz,
    PRIMARY KEY (scope, log_offset),
    CHECK (num_nonnulls(formed_at, parked_at) <= 1)
);

-- The lowest turn still waiting to be formed, which is what holds formed_through back.
CREATE INDEX turn_unformed_idx ON {schema}.turn (scope, log_offset)
    WHERE formed_at IS NULL AND parked_at IS NULL;

-- Every project has its watermark from the start, so that a writer can always UPDATE it.
CREATE FUNCTION {schema}.project_gets_watermark() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.watermark (scope) VALUES (NEW.scope) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
-- Or anyone could put it on a table of his own and have a cast of his own run with the owner's rights.
REVOKE ALL ON FUNCTION {schema}.project_gets_watermark() FROM PUBLIC;

CREATE TRIGGER project_gets_watermark AFTER INSERT ON {schema}.project
    FOR EACH ROW EXECUTE FUNCTION {schema}.project_gets_watermark();

CREATE FUNCTION {schema}.append_turn(scope text) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    next_offset bigint;
BEGIN
    -- The row lock makes offsets contiguous: two appends to one project never read the same end.
    UPDATE {schema}.watermark w SET stored_through = COALESCE(w.stored_through, -1) + 1
    WHERE w.scope = append_turn.scope
    RETURNING w.stored_through INTO next_offset;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'project "%" does not exist', append_turn.scope USING ERRCODE = 'no_data_found';
    END IF;
    INSERT INTO {schema}.turn (scope, log_offset) VALUES (append_turn.scope, next_offset);
    RETURN next_offset;
END
$$;

-- Ends one turn as formed or parked and recomputes the watermark from the log. Called only by the two
-- functions below, which the caller names.
CREATE FUNCTION {schema}.end_turn(scope text, log_offset bigint, formed boolean) RETURNS bigint
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mark        {schema}.watermark%ROWTYPE;
    turn        {schema}.turn%ROWTYPE;
    before      bigint;
    gap         bigint;
    through     bigint;
    parked_diff integer := 0;
BEGIN
    -- One ender at a time in a project: what is read below cannot change before the commit.
    SELECT * INTO mark FROM {schema}.watermark w WHERE w.scope = end_turn.scope FOR NO KEY UPDATE;
    IF FOUND THEN
        SELECT * INTO turn FROM {schema}.turn t
        WHERE t.scope = end_turn.scope AND t.log_offset = end_turn.log_offset;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'project "%" has no turn %', end_turn.scope, end_turn.log_offset
            USING ERRCODE = 'no_data_found';
    END IF;

    -- Formed is the stronger end: forming a parked turn revives it, parking a formed one changes nothing.
    IF turn.formed_at IS NOT NULL OR (turn.parked_at IS NOT NULL AND NOT formed) THEN
        RETURN mark.formed_through;
    END IF;
    IF formed THEN
        UPDATE {schema}.turn t SET formed_at = now(), parked_at = NULL
        WHERE t.scope = end_turn.scope AND t.log_offset = end_turn.log_offset;
        IF turn.parked_at IS NOT NULL THEN
            parked_diff := -1;
        END IF;
    ELSE
        UPDATE {schema}.turn t SET parked_at = now()
        WHERE t.scope = end_turn.scope AND t.log_offset = end_turn.log_offset;
        parked_diff := 1;
    END IF;

    -- Index turn_unformed_idx, from the watermark on: below it lie the entries of turns that formed, and
    -- stepping over those that no vacuum could remove yet costs ever more. No row: all have ended.
    before := COALESCE(mark.formed_through, -1);
    SELECT t.log_offset INTO gap FROM {schema}.turn t
    WHERE t.scope = end_turn.scope AND t.log_offset > before AND t.formed_at IS NULL AND t.parked_at IS NULL
    ORDER BY t.log_offset LIMIT 1;

    -- As far as the turns follow each other without a hole: an offset that was stored elsewhere and only
    -- reported by advance_watermark has no row, and nothing here says that it formed. Each turn is
    -- passed once; at a hole the first condition ends it at once. Index turn_pkey.
    IF before < mark.stored_through AND (gap IS NULL OR gap - 1 > before) THEN
        SELECT max(run.log_offset) INTO through
        FROM (
            SELECT t.log_offset, row_number() OVER (ORDER BY t.log_offset) AS nth
            FROM {schema}.turn t
            WHERE (SELECT true FROM {schema}.turn n WHERE n.scope = end_turn.scope AND n.log_offset = before + 1)
              AND t.scope = end_turn.scope AND t.log_offset > before
              AND t.log_offset <= COALESCE(gap - 1, mark.stored_through)
        ) run
        WHERE run.log_offset - run.nth = before;
    END IF;

    -- Written also where nothing changed: at REPEATABLE READ it is what makes two enders collide.
    UPDATE {schema}.watermark w
    SET formed_through = GREATEST(w.formed_through, through),
        parked_turns = LEAST(GREATEST(w.parked_turns::bigint + parked_diff, 0), 2147483647)
    WHERE w.scope = end_turn.scope
    RETURNING w.formed_through INTO through;
    RETURN through;
END
$$;

CREATE FUNCTION {schema}.form_turn(scope text, log_offset bigint) RETURNS bigint
    RETURN {schema}.end_turn(scope, log_offset, true);

CREATE FUNCTION {schema}.park_turn(scope text, log_offset bigint) RETURNS bigint
    RETURN {schema}.end_turn(scope, log_offset, false);

-- For a memory service with a log of its own. Every number moves forward only, so that reports may
-- arrive late, twice or out of order; what is formed is stored, and -1 says as null does: none yet.
CREATE FUNCTION {schema}.advance_watermark(
    scope          text,
    formed_through bigint,
    stored_through bigint  DEFAULT NULL,
    parked_turns   integer DEFAULT NULL
) RETURNS boolean
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF advance_watermark.formed_through < 0 THEN
        advance_watermark.formed_through := NULL;
    END IF;
    IF advance_watermark.stored_through < 0 THEN
        advance_watermark.stored_through := NULL;
    END IF;
    -- GREATEST passes over nulls; no row means nothing moved, or no such project.
    UPDATE {schema}.watermark w
    SET stored_through = GREATEST(w.stored_through, advance_watermark.stored_through,
                                  advance_watermark.formed_through),
        formed_through = GREATEST(w.formed_through, advance_watermark.formed_through),
        parked_turns   = GREATEST(w.parked_turns, advance_watermark.parked_turns)
    WHERE w.scope = advance_watermark.scope
      AND (advance_watermark.stored_through > COALESCE(w.stored_through, -1)
           OR advance_watermark.formed_through > COALESCE(w.formed_through, -1)
           OR advance_watermark.parked_turns > w.parked_turns);
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM {schema}.watermark w WHERE w.scope = advance_watermark.scope;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'project "%" does not exist', advance_watermark.scope
            USING ERRCODE = 'no_data_found';
    END IF;
    RETURN false;
END
$$;
