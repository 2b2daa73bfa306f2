-- Discard live jobs that wait: they end at once, and not by their own fault.
-- Params: ids bigint[], only text[] (null: whatever their state), by text, reason text, now timestamptz (null: the database's clock).
-- Returns: the ids of those that were discarded; a job that executes is left alone.
-- Waits for whoever holds a row, and goes by its state then; see cancel.sql.
WITH clock AS MATERIALIZED (
    SELECT at, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') AS text
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS t
),
locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE
        id = ANY(%(ids)s::bigint[]) AND state <> 'executing'
        AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    ORDER BY id
    FOR UPDATE
),
removed AS (
    DELETE FROM djqueue_job AS job USING locked WHERE job.id = locked.id RETURNING job.*
)
INSERT INTO djqueue_finishedjob (
    id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    ready_at, scheduled_at, expires_at, started_at, finished_at, errors, result, meta, unique_key, cancel_request
)
SELECT
    id, 'discarded', queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    ready_at, scheduled_at, expires_at, started_at, (SELECT at FROM clock),
    errors || jsonb_build_object(
        'attempt', attempt, 'at', (SELECT text FROM clock), 'by', %(by)s::text,
        'exception', 'djqueue.exceptions.Discard', 'message', %(reason)s::text, 'traceback', ''
    ),
    result, meta, unique_key, cancel_request
FROM removed
RETURNING id
