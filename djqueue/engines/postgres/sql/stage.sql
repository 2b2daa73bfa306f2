-- Make scheduled and retryable jobs available whose time has come.
-- Params: limit int, now timestamptz (null: the database's clock).
-- Returns: one row: count, queues (those that got jobs), next_in (seconds until the next one is due, null if none).
-- SKIP LOCKED: two stagers share the work, and a job that somebody cancels meanwhile is left to them.
-- next_in looks past as many entries as this run took, so that it is 0 or less while due jobs remain. (An anti-join with
-- the jobs taken says the same, but the planner expects one of them and compares each with each.)
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
due AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE ready_at IS NULL AND scheduled_at <= (SELECT at FROM clock) AND state IN ('scheduled', 'retryable')
    ORDER BY scheduled_at, id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
staged AS (
    UPDATE djqueue_job AS job
    SET state = 'available', ready_at = (SELECT at FROM clock)
    FROM due
    WHERE job.id = due.id
    RETURNING job.queue
)
SELECT
    (SELECT count(*) FROM staged) AS count,
    (SELECT COALESCE(array_agg(DISTINCT queue), '{}') FROM staged) AS queues,
    (
        SELECT extract(epoch FROM scheduled_at - (SELECT at FROM clock))::float8
        FROM djqueue_job
        WHERE ready_at IS NULL AND scheduled_at IS NOT NULL AND state IN ('scheduled', 'retryable')
        ORDER BY scheduled_at, id
        OFFSET (SELECT count(*) FROM due) LIMIT 1
    ) AS next_in
