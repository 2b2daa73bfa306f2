-- Cancel live jobs: waiting jobs end at once, executing jobs are asked to end.
-- Params: ids bigint[], only text[] (null: regardless of their state), by text, reason text, now timestamptz (null: the database's clock);
-- is_settling bool: let an event take effect (_wished.sql).
-- Returns: of each changed job id, state: 'cancelled' (it is in the history now), 'executing' (the request is in its row) or 'suspended' (the
-- request is an event); is_awaited; counts (as ack_flow.sql as_events).
-- Waits for transactions that hold a row: after a fetch the job executes and is asked, after an ack it is gone and not returned.
-- So the state at the time of the lock decides, not that of the snapshot.
-- The first request is kept, because it names who began it. ack_cancelled.sql and rescue.sql act on it.
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
        -- include: settled_here
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
    RETURNING id, state, flow_id, is_awaited
),
-- include: ends ended=cancelled as_events=true
,
-- include: wished kind=cancel
SELECT id, state, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM cancelled
UNION ALL
SELECT id, 'executing', NULL, NULL FROM requested
UNION ALL
SELECT subject_id, 'suspended', NULL, NULL FROM wished
