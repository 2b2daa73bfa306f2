-- Cancel live jobs: those that wait end at once, those that execute are asked to end.
-- Params: ids bigint[], only text[] (null: whatever their state), by text, reason text, now timestamptz (null: the database's clock).
-- Returns: id, state, of what was done: 'cancelled' (it is in the history now) or 'executing' (the request is in its row).
-- Waits for whoever holds a row: after a fetch the job executes and is asked, after an ack it is gone and no row comes back.
-- So the state that decides is that of the lock, not that of the snapshot. Locked in the order of their ids.
-- The first request is kept: it says who began it. What honours it: ack_cancelled.sql and rescue.sql.
WITH clock AS MATERIALIZED (
    SELECT at, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') AS text
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS t
),
request AS MATERIALIZED (
    SELECT jsonb_build_object('by', %(by)s::text, 'reason', %(reason)s::text, 'at', clock.text) AS request FROM clock
),
locked AS MATERIALIZED (
    SELECT id, state
    FROM djqueue_job
    WHERE id = ANY(%(ids)s::bigint[]) AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    ORDER BY id
    FOR UPDATE
),
requested AS (
    UPDATE djqueue_job AS job
    SET cancel_request = COALESCE(job.cancel_request, (SELECT request FROM request))
    FROM locked
    WHERE job.id = locked.id AND locked.state = 'executing'
    RETURNING job.id
),
removed AS (
    DELETE FROM djqueue_job AS job USING locked WHERE job.id = locked.id AND locked.state <> 'executing' RETURNING job.*
),
cancelled AS (
    INSERT INTO djqueue_finishedjob (
        id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
        ready_at, scheduled_at, expires_at, started_at, finished_at, errors, result, meta, unique_key, cancel_request
    )
    SELECT
        id, 'cancelled', queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
        ready_at, scheduled_at, expires_at, started_at, (SELECT at FROM clock),
        errors || jsonb_build_object(
            'attempt', attempt, 'at', (SELECT text FROM clock), 'by', %(by)s::text,
            'exception', 'djqueue.exceptions.Cancel', 'message', %(reason)s::text, 'traceback', ''
        ),
        result, meta, unique_key, (SELECT request FROM request)
    FROM removed
    RETURNING id
)
SELECT id, 'cancelled' AS state FROM cancelled
UNION ALL
SELECT id, 'executing' AS state FROM requested
