-- Take jobs away from dead workers.
-- Params: workers uuid[]; ran_id and ran_claim bigint[] of the same length: what really ran (null: not known, so all of them);
-- as_noted bool: the rows tell which jobs ran (note_begun.sql); the others may have run and go back with a mark;
-- kept_id and kept_claim bigint[] of the same length: claims to leave alone;
-- reason text, limit int, now timestamptz (null: the database's clock).
-- Returns: one row: requeued, discarded, queues (those that got jobs), cancelled, left (those not taken: another transaction
-- holds them, or there are more than limit), counts (as ack_flow.sql), has_events.
-- A job that ran spends its attempt and gets an error that says so; with no attempt left it is discarded, so that a job
-- that kills its worker comes to an end. A job that was only claimed goes back unchanged. The claim is
-- not lowered, so a late ack of the dead worker is stale.
-- A job whose cancellation was requested does not go back, whether it ran or not: it is cancelled.
-- The rows are found once and locked at their places: the live table has no index on attempted_by, and left needs both numbers.
-- In no order: no lock is waited for, and an order would make the planner walk along an index.
-- SKIP LOCKED: a row that is being acknowledged at this moment, or that an application holds, is not lost; it is counted in left.
-- Everything about a lost job is computed in one CTE: joining two of them, of which the planner expects one row each,
-- compares each row with each. The rows are found again by their ctid, as in fetch.sql, and the LIMIT that the planner cannot know
-- keeps it from reading the whole table for that.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
held AS MATERIALIZED (
    SELECT ctid AS place
    FROM djqueue_job
    WHERE
        attempted_by = ANY(%(workers)s::uuid[]) AND state = 'executing'
        AND (id, claim) NOT IN (SELECT * FROM unnest(%(kept_id)s::bigint[], %(kept_claim)s::bigint[]))
),
locked AS MATERIALIZED (
    SELECT
        ctid AS place, id, attempt, max_attempts, attempted_by, cancel_request,
        CASE
            WHEN %(as_noted)s THEN COALESCE(meta -> 'begun' = to_jsonb(claim), false)
            ELSE %(ran_id)s::bigint[] IS NULL
                OR (id, claim) IN (SELECT * FROM unnest(%(ran_id)s::bigint[], %(ran_claim)s::bigint[]))
        END AS has_run,
        claim
    FROM djqueue_job
    WHERE
        ctid = ANY(ARRAY(SELECT place FROM held)) AND attempted_by = ANY(%(workers)s::uuid[]) AND state = 'executing'
        AND (id, claim) NOT IN (SELECT * FROM unnest(%(kept_id)s::bigint[], %(kept_claim)s::bigint[]))
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
lost AS MATERIALIZED (
    SELECT
        place,
        CASE
            WHEN cancel_request IS NOT NULL THEN 'cancelled'
            WHEN has_run AND attempt >= max_attempts THEN 'discarded'
            ELSE 'available'
        END AS new_state,
        CASE WHEN has_run THEN attempt ELSE attempt - 1 END AS new_attempt,
        CASE WHEN %(as_noted)s AND NOT has_run THEN jsonb_build_object('lost', claim) ELSE '{}' END AS new_meta,
        CASE WHEN has_run THEN jsonb_build_array(jsonb_build_object(
            'attempt', attempt, 'at', to_char((SELECT at FROM clock) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
            'worker', attempted_by, 'exception', 'djqueue.exceptions.WorkerLost', 'message', %(reason)s::text, 'traceback', ''
        )) ELSE '[]' END
        || CASE WHEN cancel_request IS NOT NULL THEN jsonb_build_array(jsonb_build_object(
            'attempt', CASE WHEN has_run THEN attempt ELSE attempt - 1 END,
            'at', to_char((SELECT at FROM clock) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), 'by', cancel_request -> 'by',
            'exception', 'djqueue.exceptions.Cancel', 'message', COALESCE(cancel_request ->> 'reason', ''), 'traceback', ''
        )) ELSE '[]' END AS new_errors
    FROM locked
),
requeued AS (
    UPDATE djqueue_job AS job
    SET
        state = 'available',
        attempt = lost.new_attempt, 
        errors = CASE
            WHEN jsonb_array_length(lost.new_errors) = 0 THEN job.errors
            ELSE (
                -- include: capped_errors errors=job.errors
            )
        END || lost.new_errors,
        meta = CASE WHEN lost.new_meta = '{}' THEN job.meta ELSE job.meta || lost.new_meta END
    FROM lost
    WHERE job.ctid = lost.place AND lost.new_state = 'available'
    RETURNING job.queue
),
removed AS (
    DELETE FROM djqueue_job AS job
    USING lost
    WHERE job.ctid = lost.place AND lost.new_state <> 'available'
    RETURNING job.*, lost.new_state, lost.new_attempt, lost.new_errors
),
ended AS (
    -- include: to_history
        new_state, new_attempt, attempted_at, started_at, (SELECT at FROM clock), errors || new_errors, result, cancel_request
    FROM removed
    RETURNING id, state, flow_id, is_awaited
),
-- include: ends ended=ended as_events=true
SELECT
    (SELECT count(*) FROM requeued) AS requeued,
    (SELECT count(*) FROM ended WHERE state = 'discarded') AS discarded,
    (SELECT COALESCE(array_agg(DISTINCT queue), '{}') FROM requeued) AS queues,
    (SELECT count(*) FROM ended WHERE state = 'cancelled') AS cancelled,
    (SELECT count(*) FROM held) - (SELECT count(*) FROM locked) AS left,
    (SELECT array_agg(id) FROM counted) AS counts,
    EXISTS (SELECT 1 FROM noted) AS has_events
