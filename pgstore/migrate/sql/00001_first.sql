-- +goose Up

-- One row a record (design.md §2). Columns hold what the database decides on:
-- the fence (rev, token), the state, and every instant, which its own clock
-- stamps. The rest is in body, written and read by counterfoil.AppendRecord;
-- what a column says goes over what body says.
--
-- state: 1 in progress, 2 unknown, 3 failed, 4 completed, 5 tombstone,
-- 6 announced. Fixed-width columns stand first: no padding.
CREATE TABLE {{.Schema}}.counterfoil_records (
    rev            bigint      NOT NULL,
    operation      bigint      NOT NULL,
    created_at     timestamptz,
    claimed_at     timestamptz,
    lease_until    timestamptz,
    first_dispatch timestamptz,
    last_dispatch  timestamptz,
    quiet_at       timestamptz,
    settled_at     timestamptz,
    replay_until   timestamptz,
    horizon        timestamptz,
    announced_at   timestamptz,
    -- When the last entry of the evidence in body was added; null: it says so itself.
    evidence_at    timestamptz,
    -- When a sweep may first have anything to do. A claim is never due.
    due_at         timestamptz GENERATED ALWAYS AS (
        CASE state WHEN 1 THEN NULL WHEN 4 THEN coalesce(replay_until, '-infinity') ELSE horizon END
    ) STORED,
    -- The day partition that holds the response; null: there is none.
    response_on    date,
    state          smallint    NOT NULL,
    holds          smallint    NOT NULL,
    id             bytea       NOT NULL PRIMARY KEY,
    principal      bytea       NOT NULL,
    token          bytea,
    reference      bytea,
    gate_names     text[],
    gate_untils    timestamptz[],
    body           bytea       NOT NULL
) {{- if gt .Partitions 1}} PARTITION BY HASH (id){{end}}
{{- if le .Partitions 1}} WITH (
    fillfactor = 70, -- room for the completion beside the claim
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.05
){{end}};
{{range .Numbers}}
CREATE TABLE {{$.Schema}}.counterfoil_records_{{.}} PARTITION OF {{$.Schema}}.counterfoil_records
    FOR VALUES WITH (MODULUS {{$.Partitions}}, REMAINDER {{.}}) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.05
);
{{end}}
CREATE INDEX counterfoil_records_due   ON {{.Schema}}.counterfoil_records (due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX counterfoil_records_lease ON {{.Schema}}.counterfoil_records (lease_until, id) WHERE state = 1;
CREATE INDEX counterfoil_records_open  ON {{.Schema}}.counterfoil_records (principal) WHERE state IN (1, 2);

-- Whole responses, by the day on which they may go: a day is dropped, not
-- deleted. What belongs to no day that was made is in the default partition.
CREATE TABLE {{.Schema}}.counterfoil_responses (
    expires_on date  NOT NULL,
    id         bytea NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (expires_on, id)
) PARTITION BY RANGE (expires_on);

CREATE TABLE {{.Schema}}.counterfoil_responses_default PARTITION OF {{.Schema}}.counterfoil_responses DEFAULT;

-- Small named values by compare-and-swap on rev.
CREATE TABLE {{.Schema}}.counterfoil_meta (
    name  text   PRIMARY KEY,
    rev   bigint NOT NULL,
    value bytea  NOT NULL
);

-- F, forgotten through, per operation (design.md §7). It only grows.
CREATE TABLE {{.Schema}}.counterfoil_forgotten (
    operation bigint PRIMARY KEY,
    through   timestamptz NOT NULL
);

-- One row: what this store is.
CREATE TABLE {{.Schema}}.counterfoil_store (
    single        boolean PRIMARY KEY DEFAULT true CHECK (single),
    id            uuid    NOT NULL DEFAULT gen_random_uuid(),
    -- How many days ahead response partitions are made.
    response_days integer NOT NULL DEFAULT 2
);
INSERT INTO {{.Schema}}.counterfoil_store DEFAULT VALUES;

-- +goose StatementBegin
-- The store's clock, in one place. Never now(): that is the transaction's start.
CREATE FUNCTION {{.Schema}}.counterfoil_now() RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$ SELECT clock_timestamp() $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- An instant that a caller gave, in milliseconds since 1970, or a delay from
-- the store's now, which is given rounded down and up to whole milliseconds:
-- nothing ends earlier than was asked. The least bigint stands for neither.
-- STABLE, as its operators are: otherwise it is called, not inlined, which made
-- a claim ten times as dear.
CREATE FUNCTION {{.Schema}}.counterfoil_stamp(at_ms bigint, delay_ms bigint, lower timestamptz, upper timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN delay_ms > 0 THEN upper + delay_ms * interval '1 millisecond'
        WHEN delay_ms > (-9223372036854775808) THEN lower + delay_ms * interval '1 millisecond'
        WHEN at_ms > (-9223372036854775808) THEN timestamptz '1970-01-01 00:00:00+00' + at_ms * interval '1 millisecond'
    END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The first gate that still keeps a record, or null; a hold is a gate.
CREATE FUNCTION {{.Schema}}.counterfoil_gate(holds smallint, names text[], untils timestamptz[], at timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN holds > 0 THEN 'hold'
        WHEN names IS NOT NULL THEN (
            SELECT g.name FROM unnest(names, untils) WITH ORDINALITY AS g (name, until, place)
            WHERE g.until > at ORDER BY g.place LIMIT 1)
    END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Does the steps of many callers in one transaction, in the order given, which
-- is that of their IDs. It never waits for a lock: a record that another
-- transaction holds is answered "busy", so that one held key stalls nobody
-- else (cases.md C79).
--
-- steps:   1 create, 2 update, 3 get, 4 response.
-- at, ins: eleven a step, in the order of the columns created_at to evidence_at.
-- replies: 0 drops a kept response, 1 keeps it, 2 attaches the one given.
-- outcome: 0 done, 1 standing, 2 busy, 3 forgotten, 4 over quota, 5 fenced,
--          6 conflict, 7 not found, 8 try again soon, 9 of another version.
--
-- It decides one by one and reads and writes all together: most of what a
-- statement costs is paid once, however many rows it has.
--
-- Two rules keep it right at READ COMMITTED, where every statement here sees
-- what was committed before it: whoever inserts an ID holds its advisory lock
-- (dangers.md G05), and F is read again after the insert, so that a record
-- whose deletion came in between is not forgotten (design.md §7). At the two
-- stricter levels the snapshot is the transaction's, and a record that it does
-- not show but that stands is a serialization failure.
--
-- Every row is found by its ID; a plan made while a table was empty, which
-- reads all of it, must not stay when it has grown.
CREATE FUNCTION {{.Schema}}.counterfoil_apply(
    steps smallint[], ids bytea[], locks bigint[],
    operations bigint[], states smallint[], hold_counts smallint[],
    principals bytea[], principal_locks bigint[], tokens bytea[], refs bytea[], bodies bytea[],
    at bigint[], ins bigint[],
    gates text[], gates_at text[], gates_in text[],
    replies smallint[], responses bytea[],
    if_revs bigint[], if_tokens bytea[],
    max_opens integer[], borns bigint[], kins text[],
    in_transaction boolean
) RETURNS TABLE (n integer, outcome smallint, as_of timestamptz, forgotten timestamptz, rec {{.Schema}}.counterfoil_records, response bytea)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    none CONSTANT bigint := -9223372036854775808;
    total     integer := cardinality(steps);
    locked    boolean[];   -- the advisory lock of a create is held
    held      {{.Schema}}.counterfoil_records[]; -- what an update has locked
    seen      {{.Schema}}.counterfoil_records[]; -- what stands
    creates   integer[] := '{}'; -- which steps go through
    updates   integer[] := '{}';
    attached  integer[] := '{}';
    reply_ons date[];
    -- The open records of each principal of the batch: counted, let through in
    -- this batch, and whether its lock is held.
    owners    bytea[];
    counted   integer[];
    let       integer[];
    owned     boolean[];
    old       {{.Schema}}.counterfoil_records;
    fresh     {{.Schema}}.counterfoil_records;
    lower     timestamptz;
    upper     timestamptz;
    now_at    timestamptz;
    wrote     bytea; -- the ID of the last step that goes through
    i         integer;
    j         integer;
    k         integer;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby' USING ERRCODE = 'CF003', HINT = 'Connect to the primary.';
    END IF;
    IF NOT in_transaction THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'transactions of this role are % by default', current_setting('transaction_isolation')
                USING ERRCODE = 'CF002', HINT = 'ALTER ROLE ' || quote_ident(current_user) || ' SET default_transaction_isolation = ''read committed''';
        END IF;
    ELSIF current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION 'the transaction is read-only' USING ERRCODE = '25006';
    END IF;
    -- A claim is durable before it is told, whatever the session says.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- Locks first, without waiting; then what stands, as of now.
    held := array_fill(NULL::{{.Schema}}.counterfoil_records, ARRAY[total]);
    seen := held;
    locked := array_fill(false, ARRAY[total]);
    FOR s IN 1 .. total LOOP
        IF steps[s] = 1 THEN
            locked[s] := pg_try_advisory_xact_lock(locks[s]);
        END IF;
    END LOOP;
    IF 2 = ANY (steps) THEN
        i := 1;
        FOR fresh IN
            SELECT r.* FROM {{.Schema}}.counterfoil_records r
            WHERE r.id = ANY (ARRAY(SELECT ids[g] FROM generate_series(1, total) g WHERE steps[g] = 2))
            ORDER BY r.id FOR UPDATE SKIP LOCKED
        LOOP
            WHILE ids[i] < fresh.id LOOP i := i + 1; END LOOP;
            WHILE i <= total AND ids[i] = fresh.id LOOP
                held[i] := fresh;
                i := i + 1;
            END LOOP;
        END LOOP;
    END IF;
    i := 1;
    FOR fresh IN SELECT r.* FROM {{.Schema}}.counterfoil_records r WHERE r.id = ANY (ids) ORDER BY r.id LOOP
        WHILE ids[i] < fresh.id LOOP i := i + 1; END LOOP;
        WHILE i <= total AND ids[i] = fresh.id LOOP
            seen[i] := fresh;
            i := i + 1;
        END LOOP;
    END LOOP;
    -- Time is read after every lock.
    now_at := {{.Schema}}.counterfoil_now();
    as_of := now_at;
    lower := date_trunc('milliseconds', now_at);
    upper := CASE WHEN lower = now_at THEN lower ELSE lower + interval '1 millisecond' END;

    SELECT array_agg(d.owner), array_agg(d.n), array_agg(0), array_agg(false) INTO owners, counted, let, owned FROM (
        SELECT p.owner, (SELECT count(*)::integer FROM (
            SELECT 1 FROM {{.Schema}}.counterfoil_records r WHERE r.principal = p.owner AND r.state IN (1, 2) LIMIT p.most) o) AS n
        FROM (
            SELECT principals[g] AS owner, max(max_opens[g]) AS most FROM generate_series(1, total) g
            WHERE steps[g] IN (1, 2) AND max_opens[g] > 0 AND states[g] IN (1, 2)
              AND ((seen[g]).id IS NULL OR steps[g] = 2 AND (seen[g]).state NOT IN (1, 2))
            GROUP BY principals[g]) p) d;

    FOR s IN 1 .. total LOOP
        n := s;
        forgotten := NULL;
        rec := seen[s];
        response := NULL;
        IF steps[s] IN (3, 4) THEN
            outcome := CASE WHEN rec.id IS NULL THEN 7 ELSE 1 END;
            IF steps[s] = 4 AND outcome = 1 THEN
                IF rec.rev <> if_revs[s] THEN
                    outcome := 6;
                ELSIF rec.response_on IS NOT NULL THEN
                    SELECT b.body INTO response FROM {{.Schema}}.counterfoil_responses b
                        WHERE b.expires_on = rec.response_on AND b.id = ids[s];
                    -- It is that of this rev if the rev has not moved since.
                    IF NOT EXISTS (SELECT FROM {{.Schema}}.counterfoil_records r WHERE r.id = ids[s] AND r.rev = rec.rev) THEN
                        outcome := 6;
                        response := NULL;
                    END IF;
                END IF;
                rec := NULL;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;

        IF steps[s] = 1 THEN
            outcome := CASE
                WHEN rec.id IS NOT NULL THEN 1
                WHEN NOT locked[s] THEN 2
                WHEN ids[s] = wrote THEN 8 -- an earlier step of this batch made it
                ELSE 0 END;
        ELSE
            outcome := CASE
                WHEN rec.id IS NULL THEN 7
                WHEN (held[s]).id IS NULL THEN 2
                WHEN ids[s] = wrote THEN 8
                WHEN get_byte((held[s]).body, 0) <> 1 THEN 9
                WHEN (held[s]).token IS DISTINCT FROM if_tokens[s] THEN 5
                WHEN (held[s]).rev <> if_revs[s] THEN 6
                ELSE 0 END;
            rec := held[s];
        END IF;
        IF outcome = 0 AND steps[s] = 1 AND borns[s] <> none THEN
            SELECT max(f.through) INTO forgotten FROM {{.Schema}}.counterfoil_forgotten f
                WHERE f.operation = ANY (kins[s]::bigint[]) AND f.through >= {{.Schema}}.counterfoil_stamp(borns[s], none, NULL, NULL);
            IF forgotten IS NOT NULL THEN
                outcome := 3;
            END IF;
        END IF;
        IF outcome = 0 AND max_opens[s] > 0 AND states[s] IN (1, 2) AND (rec.id IS NULL OR rec.state NOT IN (1, 2)) THEN
            k := array_position(owners, principals[s]);
            -- Near the bound, batches with claims of one principal go one by one, so
            -- that it is exact unless others let half of it through at this moment.
            IF (counted[k] * 2 >= max_opens[s] OR max_opens[s] <= 64) AND NOT owned[k] AND NOT in_transaction THEN
                IF pg_try_advisory_xact_lock(principal_locks[s]) THEN
                    owned[k] := true;
                    SELECT count(*)::integer INTO j FROM (
                        SELECT 1 FROM {{.Schema}}.counterfoil_records r WHERE r.principal = principals[s] AND r.state IN (1, 2) LIMIT max_opens[s]) o;
                    counted[k] := j;
                ELSE
                    outcome := 8;
                END IF;
            END IF;
            IF outcome = 0 THEN
                IF counted[k] + let[k] >= max_opens[s] THEN
                    outcome := 4;
                ELSE
                    let[k] := let[k] + 1;
                END IF;
            END IF;
        END IF;
        IF outcome <> 0 THEN
            IF outcome NOT IN (1, 5, 6, 9) THEN
                rec := NULL;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;
        wrote := ids[s];
        IF steps[s] = 1 THEN
            creates := creates || s;
        ELSE
            updates := updates || s;
        END IF;
    END LOOP;

    response := NULL;
    IF creates <> '{}' THEN
        j := 1;
        FOR fresh IN
            INSERT INTO {{.Schema}}.counterfoil_records (
                rev, operation, created_at, claimed_at, lease_until, first_dispatch, last_dispatch, quiet_at,
                settled_at, replay_until, horizon, announced_at, evidence_at,
                state, holds, id, principal, token, reference, gate_names, gate_untils, body
            ) SELECT 1, operations[c.i],
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 10], ins[c.i * 11 - 10], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 9], ins[c.i * 11 - 9], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 8], ins[c.i * 11 - 8], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 7], ins[c.i * 11 - 7], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 6], ins[c.i * 11 - 6], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 5], ins[c.i * 11 - 5], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 4], ins[c.i * 11 - 4], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 3], ins[c.i * 11 - 3], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 2], ins[c.i * 11 - 2], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 1], ins[c.i * 11 - 1], lower, upper),
                {{.Schema}}.counterfoil_stamp(at[c.i * 11], ins[c.i * 11], lower, upper),
                states[c.i], hold_counts[c.i], ids[c.i], principals[c.i], tokens[c.i], refs[c.i], gates[c.i]::text[],
                CASE WHEN gates[c.i] IS NOT NULL THEN (
                    SELECT array_agg({{.Schema}}.counterfoil_stamp(g.at_ms, g.in_ms, lower, upper) ORDER BY g.place)
                    FROM unnest(gates_at[c.i]::bigint[], gates_in[c.i]::bigint[]) WITH ORDINALITY AS g (at_ms, in_ms, place)) END,
                bodies[c.i]
            FROM unnest(creates) WITH ORDINALITY AS c (i, place) ORDER BY c.place
            ON CONFLICT (id) DO NOTHING
            RETURNING *
        LOOP
            rec := NULL;
            forgotten := NULL;
            WHILE ids[creates[j]] <> fresh.id LOOP
                n := creates[j];
                outcome := 8; -- somebody inserted it who does not take the lock
                RETURN NEXT;
                j := j + 1;
            END LOOP;
            n := creates[j];
            j := j + 1;
            outcome := 0;
            rec := fresh;
            IF borns[n] <> none THEN
                SELECT max(f.through) INTO forgotten FROM {{.Schema}}.counterfoil_forgotten f
                    WHERE f.operation = ANY (kins[n]::bigint[]) AND f.through >= {{.Schema}}.counterfoil_stamp(borns[n], none, NULL, NULL);
                IF forgotten IS NOT NULL THEN
                    DELETE FROM {{.Schema}}.counterfoil_records r WHERE r.id = ids[n];
                    outcome := 3;
                    rec := NULL;
                END IF;
            END IF;
            RETURN NEXT;
        END LOOP;
        rec := NULL;
        forgotten := NULL;
        WHILE j <= cardinality(creates) LOOP
            n := creates[j];
            outcome := 8;
            RETURN NEXT;
            j := j + 1;
        END LOOP;
    END IF;

    IF updates <> '{}' THEN
        reply_ons := array_fill(NULL::date, ARRAY[total]);
        outcome := 0;
        j := 1;
        FOR fresh IN
            UPDATE {{.Schema}}.counterfoil_records r SET
                rev = r.rev + 1,
                operation = operations[c.i],
                created_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 10], ins[c.i * 11 - 10], lower, upper),
                claimed_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 9], ins[c.i * 11 - 9], lower, upper),
                lease_until = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 8], ins[c.i * 11 - 8], lower, upper),
                first_dispatch = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 7], ins[c.i * 11 - 7], lower, upper),
                last_dispatch = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 6], ins[c.i * 11 - 6], lower, upper),
                quiet_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 5], ins[c.i * 11 - 5], lower, upper),
                settled_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 4], ins[c.i * 11 - 4], lower, upper),
                replay_until = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 3], ins[c.i * 11 - 3], lower, upper),
                horizon = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 2], ins[c.i * 11 - 2], lower, upper),
                announced_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11 - 1], ins[c.i * 11 - 1], lower, upper),
                evidence_at = {{.Schema}}.counterfoil_stamp(at[c.i * 11], ins[c.i * 11], lower, upper),
                response_on = CASE WHEN replies[c.i] = 2 OR replies[c.i] = 1 AND r.response_on IS NOT NULL THEN
                    coalesce(({{.Schema}}.counterfoil_stamp(at[c.i * 11 - 3], ins[c.i * 11 - 3], lower, upper) AT TIME ZONE 'UTC')::date, 'infinity') END,
                state = states[c.i],
                holds = hold_counts[c.i],
                principal = principals[c.i],
                token = tokens[c.i],
                reference = refs[c.i],
                gate_names = gates[c.i]::text[],
                gate_untils = CASE WHEN gates[c.i] IS NOT NULL THEN (
                    SELECT array_agg({{.Schema}}.counterfoil_stamp(g.at_ms, g.in_ms, lower, upper) ORDER BY g.place)
                    FROM unnest(gates_at[c.i]::bigint[], gates_in[c.i]::bigint[]) WITH ORDINALITY AS g (at_ms, in_ms, place)) END,
                body = bodies[c.i]
            FROM unnest(updates) AS c (i)
            WHERE r.id = ids[c.i]
            RETURNING r.*
        LOOP
            -- The rows come in the order of the steps; look further where not.
            IF j > cardinality(updates) OR ids[updates[j]] <> fresh.id THEN
                j := 1;
                WHILE ids[updates[j]] <> fresh.id LOOP j := j + 1; END LOOP;
            END IF;
            n := updates[j];
            j := j + 1;
            rec := fresh;
            reply_ons[n] := fresh.response_on;
            RETURN NEXT;
            old := held[n];
            IF replies[n] = 2 THEN
                attached := attached || n;
            ELSIF fresh.response_on <> old.response_on THEN
                -- It is kept longer or shorter now: it goes with another day.
                INSERT INTO {{.Schema}}.counterfoil_responses (expires_on, id, body)
                    SELECT fresh.response_on, b.id, b.body FROM {{.Schema}}.counterfoil_responses b WHERE b.expires_on = old.response_on AND b.id = old.id
                    ON CONFLICT (expires_on, id) DO UPDATE SET body = excluded.body;
            END IF;
            IF old.response_on IS NOT NULL AND fresh.response_on IS DISTINCT FROM old.response_on THEN
                DELETE FROM {{.Schema}}.counterfoil_responses b WHERE b.expires_on = old.response_on AND b.id = old.id;
            END IF;
        END LOOP;
        IF attached <> '{}' THEN
            INSERT INTO {{.Schema}}.counterfoil_responses (expires_on, id, body)
                SELECT reply_ons[c.i], ids[c.i], responses[c.i] FROM unnest(attached) AS c (i)
                ON CONFLICT (expires_on, id) DO UPDATE SET body = excluded.body;
        END IF;
    END IF;

    -- Fence (dangers.md G04): with synchronous standbys, what was only read may
    -- not have reached them yet. A commit that wrote something waits for them.
    IF pg_current_xact_id_if_assigned() IS NULL AND current_setting('synchronous_standby_names') <> '' THEN
        PERFORM pg_logical_emit_message(true, 'counterfoil', '');
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- One batch of expiry by the rules of counterfoil.SweepOrder. It looks at no
-- more than lim records, in the order in which they fell due, under whatever
-- plan: the list is materialized once (cases.md C41). Records that somebody
-- else holds are passed over, and found by the next pass.
CREATE FUNCTION {{.Schema}}.counterfoil_sweep(
    lim integer, grace interval, sweeper_now timestamptz, after_due timestamptz, after_id bytea,
    OUT examined integer, OUT responses_dropped integer, OUT tombstoned integer, OUT closed integer,
    OUT announced integer, OUT tombstones_deleted integer, OUT failed_deleted integer,
    OUT kept text, OUT next_due timestamptz, OUT next_id bytea, OUT as_of timestamptz
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    at      timestamptz;
    stamp   timestamptz;
    loose   bytea[];
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'this server is a standby' USING ERRCODE = 'CF003', HINT = 'Connect to the primary.';
    END IF;
    as_of := {{.Schema}}.counterfoil_now();
    at := least(as_of, coalesce(sweeper_now, as_of));
    stamp := date_trunc('milliseconds', as_of);
    IF abs(extract(epoch FROM as_of - coalesce(sweeper_now, as_of))) > 60 THEN
        RAISE EXCEPTION 'the store has %, the sweeper %', as_of, sweeper_now USING ERRCODE = 'CF001';
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    WITH due AS MATERIALIZED (
        SELECT r.id, r.due_at, r.state, r.operation, r.created_at, r.horizon, r.announced_at, r.response_on, r.holds, r.gate_names, r.gate_untils
        FROM {{.Schema}}.counterfoil_records r
        WHERE r.due_at <= at AND r.due_at IS NOT NULL
          AND (r.due_at, r.id) > (coalesce(after_due, '-infinity'), coalesce(after_id, ''::bytea))
          AND get_byte(r.body, 0) = 1 -- of a version that these rules know
        ORDER BY r.due_at, r.id
        LIMIT lim
        FOR UPDATE SKIP LOCKED
    ), judged AS MATERIALIZED (
        SELECT d.*,
            d.state = 4 AS strips,
            d.state = 2 AND d.holds = 0 AS closes,
            d.horizon <= at AS passed,
            CASE WHEN d.horizon <= at THEN {{.Schema}}.counterfoil_gate(d.holds, d.gate_names, d.gate_untils, at) END AS gate
        FROM due d
    ), act AS MATERIALIZED (
        SELECT j.*,
            -- Nothing keeps it any longer, and it may have had an effect.
            coalesce(j.passed AND j.gate IS NULL AND j.state <> 3, false) AS ready,
            coalesce(j.passed AND j.gate IS NULL AND j.state <> 3, false) AND (j.state <> 6 OR j.announced_at IS NULL) AS tells,
            CASE j.state
                WHEN 3 THEN coalesce(j.passed AND j.gate IS NULL, false)
                ELSE coalesce(j.passed AND j.gate IS NULL
                    AND as_of - (CASE WHEN j.state = 6 THEN coalesce(j.announced_at, stamp) ELSE stamp END) >= grace, false)
            END AS goes
        FROM judged j
    ), forget AS (
        INSERT INTO {{.Schema}}.counterfoil_forgotten AS f (operation, through)
        SELECT a.operation, max(a.created_at) FROM act a WHERE a.ready AND (a.goes OR a.tells) AND a.created_at IS NOT NULL
        GROUP BY a.operation ORDER BY a.operation
        ON CONFLICT (operation) DO UPDATE SET through = excluded.through WHERE f.through < excluded.through
        RETURNING 1
    ), told AS (
        INSERT INTO {{.Schema}}.counterfoil_meta AS m (name, rev, value)
        SELECT 'forgotten', 1, '' FROM forget LIMIT 1
        ON CONFLICT (name) DO UPDATE SET rev = m.rev + 1
    ), gone AS (
        DELETE FROM {{.Schema}}.counterfoil_records r USING act a WHERE r.id = a.id AND a.goes
    ), moved AS (
        UPDATE {{.Schema}}.counterfoil_records r SET
            rev = r.rev + (a.strips OR a.closes)::integer + a.tells::integer,
            state = CASE WHEN a.ready THEN 6 ELSE 5 END,
            announced_at = CASE WHEN a.ready THEN coalesce(CASE WHEN a.state = 6 THEN a.announced_at END, stamp) ELSE r.announced_at END,
            settled_at = CASE WHEN a.closes THEN stamp ELSE r.settled_at END,
            token = NULL,
            reference = NULL,
            response_on = CASE WHEN a.strips OR a.closes THEN NULL ELSE r.response_on END
        FROM act a
        WHERE r.id = a.id AND NOT a.goes
          AND (a.strips OR a.closes OR a.tells)
    )
    SELECT count(*),
        count(*) FILTER (WHERE a.strips AND a.response_on IS NOT NULL),
        count(*) FILTER (WHERE a.strips),
        count(*) FILTER (WHERE a.closes),
        count(*) FILTER (WHERE a.tells),
        count(*) FILTER (WHERE a.goes AND a.state <> 3),
        count(*) FILTER (WHERE a.goes AND a.state = 3),
        (SELECT json_object_agg(g.gate, g.n)::text FROM (SELECT a.gate, count(*) AS n FROM act a WHERE a.gate IS NOT NULL GROUP BY a.gate) g),
        array_agg(a.id) FILTER (WHERE a.response_on IS NOT NULL AND (a.strips OR a.closes OR a.goes)),
        (array_agg(a.due_at ORDER BY a.due_at DESC, a.id DESC))[1],
        (array_agg(a.id ORDER BY a.due_at DESC, a.id DESC))[1]
    INTO examined, responses_dropped, tombstoned, closed, announced, tombstones_deleted, failed_deleted, kept, loose, next_due, next_id
    FROM act a;

    IF examined < lim THEN -- the end of the pass
        next_due := NULL;
        next_id := NULL;
    END IF;
    -- Days are dropped whole; only what belongs to none is deleted here.
    IF loose IS NOT NULL AND EXISTS (SELECT FROM {{.Schema}}.counterfoil_responses_default) THEN
        DELETE FROM {{.Schema}}.counterfoil_responses_default b WHERE b.id = ANY (loose);
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- Makes the days that lie ahead and, after a whole pass, drops those that are over. What it cannot
-- lock at once it leaves to the next pass, so that nobody queues behind it. It
-- runs as its owner: the role of the store need not own the tables.
CREATE FUNCTION {{.Schema}}.counterfoil_days(ahead integer, over boolean, OUT made integer, OUT dropped integer)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    now_at  timestamptz := {{.Schema}}.counterfoil_now();
    today   date := (now_at AT TIME ZONE 'UTC')::date;
    day     date;
    child   text;
    days    integer;
BEGIN
    made := 0;
    dropped := 0;
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{{.Schema}} counterfoil_days', 0)) THEN
        RETURN; -- another node is at it
    END IF;
    UPDATE {{.Schema}}.counterfoil_store SET response_days = least(ahead, 400) WHERE response_days < least(ahead, 400);
    SELECT s.response_days INTO days FROM {{.Schema}}.counterfoil_store s;
    PERFORM set_config('lock_timeout', '250ms', true);
    FOR i IN 0 .. days LOOP
        day := today + i;
        child := 'counterfoil_responses_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('{{.Schema}}.%I', child)) IS NOT NULL
            OR EXISTS (SELECT FROM {{.Schema}}.counterfoil_responses_default d WHERE d.expires_on = day);
        BEGIN
            -- Attaching takes a weaker lock than making a partition does.
            EXECUTE format('CREATE TABLE {{.Schema}}.%I (LIKE {{.Schema}}.counterfoil_responses INCLUDING ALL)', child);
            EXECUTE format('ALTER TABLE {{.Schema}}.counterfoil_responses ATTACH PARTITION {{.Schema}}.%I FOR VALUES FROM (%L) TO (%L)', child, day, day + 1);
            made := made + 1;
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR duplicate_table OR check_violation THEN
            NULL;
        END;
    END LOOP;
    FOR child IN
        SELECT c.relname FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid
        WHERE h.inhparent = '{{.Schema}}.counterfoil_responses'::regclass AND c.relname ~ '^counterfoil_responses_[0-9]{8}$'
          AND over
          -- An hour for a clock that is about to be set back.
          AND to_date(right(c.relname, 8), 'YYYYMMDD') < ((now_at - interval '1 hour') AT TIME ZONE 'UTC')::date
        ORDER BY c.relname
    LOOP
        BEGIN
            EXECUTE format('DROP TABLE {{.Schema}}.%I', child);
            dropped := dropped + 1;
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR undefined_table THEN
            NULL;
        END;
    END LOOP;
    IF over THEN
        DELETE FROM {{.Schema}}.counterfoil_responses_default d WHERE d.ctid = ANY (ARRAY(
            SELECT o.ctid FROM {{.Schema}}.counterfoil_responses_default o WHERE o.expires_on < today - 1 LIMIT 10000));
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- A whole pass, batch by batch, each in a transaction of its own: for pg_cron.
-- Its note is the one that package sweep writes.
CREATE PROCEDURE {{.Schema}}.counterfoil_sweep_pass(grace interval, lim integer DEFAULT 5000)
LANGUAGE plpgsql AS $$
DECLARE
    s       record;
    due     timestamptz;
    place   bytea;
    deleted bigint := 0;
    note    text;
BEGIN
    LOOP
        SELECT * INTO s FROM {{.Schema}}.counterfoil_sweep(lim, grace, NULL, due, place);
        deleted := deleted + s.tombstones_deleted + s.failed_deleted;
        COMMIT;
        EXIT WHEN s.next_due IS NULL;
        due := s.next_due;
        place := s.next_id;
    END LOOP;
    PERFORM {{.Schema}}.counterfoil_days(0, true);
    COMMIT;
    note := json_build_object('format', 1,
        'last_run', to_char(s.as_of AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'deleted', deleted, 'failures', 0);
    INSERT INTO {{.Schema}}.counterfoil_meta AS m (name, rev, value) VALUES ('sweep', 1, convert_to(note, 'UTF8'))
        ON CONFLICT (name) DO UPDATE SET rev = m.rev + 1, value = excluded.value;
    COMMIT;
END
$$;
-- +goose StatementEnd
