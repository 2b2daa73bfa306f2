-- Complete a job that waits for a signal, with what the signal brings as its result.
-- Params: id bigint, task text (that of such jobs), payload jsonb, by text, now timestamptz (null: the database's clock).
-- Returns: id, is_awaited, counts (as ack_flow.sql as_events); no row: it has ended, or its time is over and it executes.
-- Who signalled is kept in meta.
-- In the caller's transaction: nothing that runs jobs needs the row of a scheduled job before its time, so no ack waits for it.
-- A transaction that signals the same job waits here, and finds no row after the commit of the first.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE id = %(id)s::bigint AND task = %(task)s::text AND pending IS NULL AND state <> 'executing'
    FOR UPDATE
),
removed AS (
    DELETE FROM djqueue_job AS job USING locked WHERE job.id = locked.id
    RETURNING
        CASE
            WHEN %(by)s::text = '' THEN job
            ELSE jsonb_populate_record(job, jsonb_build_object('meta', job.meta || jsonb_build_object('signalled_by', %(by)s::text)))
        END AS job
),
signalled AS (
    -- include: to_history
        'completed', attempt, attempted_at, started_at, COALESCE(%(now)s::timestamptz, clock_timestamp()), errors, %(payload)s::jsonb,
        cancel_request
    FROM (SELECT (job).* FROM removed) AS removed
    RETURNING id, state, flow_id, is_awaited
),
-- include: ends ended=signalled as_events=true
SELECT id, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM signalled
