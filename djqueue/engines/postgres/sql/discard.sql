-- Discard live jobs that wait: they end at once, without having failed.
-- Params: ids bigint[], only text[] (null: regardless of their state), by text, reason text, now timestamptz (null: the database's clock);
-- is_settling bool: let an event take effect (_wished.sql).
-- Returns: as cancel.sql; a job that executes is left alone.
-- Waits for transactions that hold a row, and uses the state that the job has then; see cancel.sql.
WITH
-- include: dated_clock
,
-- include: locked_waiting
,
removed AS (
    DELETE FROM djqueue_job AS job USING locked WHERE job.id = locked.id RETURNING job.*
),
discarded AS (
    -- include: to_history
        'discarded', attempt, attempted_at, started_at, (SELECT at FROM clock),
        errors || jsonb_build_object(
            'attempt', attempt, 'at', (SELECT text FROM clock), 'by', %(by)s::text,
            'exception', 'djqueue.exceptions.Discard', 'message', %(reason)s::text, 'traceback', ''
        ),
        result, cancel_request
    FROM removed
    RETURNING id, state, flow_id, is_awaited
),
-- include: ends ended=discarded as_events=true
,
-- include: wished kind=discard
SELECT id, state, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM discarded
UNION ALL
SELECT subject_id, 'suspended', NULL, NULL FROM wished
