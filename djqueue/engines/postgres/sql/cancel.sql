-- Cancel live jobs: those that wait end at once, those that execute are asked to end.
-- Params: ids bigint[], only text[] (null: whatever their state), by text, reason text, now timestamptz (null: the database's clock).
-- Returns: id, state, of what was done: 'cancelled' (it is in the history now) or 'executing' (the request is in its row).
-- Waits for whoever holds a row: after a fetch the job executes and is asked, after an ack it is gone and no row comes back.
-- So the state that decides is that of the lock, not that of the snapshot. Locked in the order of their ids.
-- The first request is kept: it says who began it. What honours it: ack_cancelled.sql and rescue.sql.
WITH
-- include: dated_clock
,
request AS MATERIALIZED (
    SELECT jsonb_build_object('by', %(by)s::text, 'reason', %(reason)s::text, 'at', clock.text) AS request FROM clock
),
locked AS MATERIALIZED (
    SELECT id, state
    FROM djqueue_job
    WHERE
        -- include: chosen
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
    -- include: to_history
        'cancelled', attempt, attempted_at, started_at, (SELECT at FROM clock),
        errors || jsonb_build_object(
            'attempt', attempt, 'at', (SELECT text FROM clock), 'by', %(by)s::text,
            'exception', 'djqueue.exceptions.Cancel', 'message', %(reason)s::text, 'traceback', ''
        ),
        result, (SELECT request FROM request)
    FROM removed
    RETURNING id
)
SELECT id, 'cancelled' AS state FROM cancelled
UNION ALL
SELECT id, 'executing' AS state FROM requested
