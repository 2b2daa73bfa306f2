-- Make scheduled and retryable jobs available that are due.
-- Params: limit int; ids bigint[] (null: all that are due); skip bigint[] (jobs that could not be staged before);
-- since timestamptz (leave out what was due before; null: nothing); now timestamptz (null: the database's clock).
-- Returns: one row: count, queues (those that got jobs), next_in (seconds until the next one is due, null if none), at (text: the
-- time used as now).
-- SKIP LOCKED: two stagers share the work, and a job that is being cancelled is skipped.
-- The phrases that keep the planner on the index djqueue_job_stage are explained in _available.sql and _claimable.sql.
-- synchronous_commit off: a job need not wait for the disk to start on time. What a crash undoes is staged again.
-- next_in skips as many entries as this run took, so that it is 0 or less while due jobs remain. (An anti-join with
-- the jobs taken says the same, but the planner expects one of them and compares each with each.) Before PostgreSQL 17 nothing can
-- be subtracted from infinity.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at, set_config('synchronous_commit', 'off', true) AS setting
),
due AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        ready_at IS NULL AND scheduled_at <= (SELECT at FROM clock) AND state <> 'suspended'
        AND scheduled_at >= COALESCE(%(since)s::timestamptz, '-infinity')
        AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[])) AND id <> ALL(%(skip)s::bigint[])
    ORDER BY scheduled_at, id
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
staged AS (
    UPDATE djqueue_job AS job
    SET state = 'available', ready_at = (SELECT at FROM clock)
    WHERE job.ctid = ANY (ARRAY(SELECT ctid FROM due))
    RETURNING job.queue
)
SELECT
    (SELECT count(*) FROM staged) AS count,
    (SELECT COALESCE(array_agg(DISTINCT queue), '{}') FROM staged) AS queues,
    (
        SELECT extract(epoch FROM LEAST(GREATEST(scheduled_at, 'epoch'), '9999-01-01') - (SELECT at FROM clock))::float8
        FROM djqueue_job
        WHERE
            ready_at IS NULL AND scheduled_at >= COALESCE(%(since)s::timestamptz, '-infinity') AND state <> 'suspended'
            AND id <> ALL(%(skip)s::bigint[])
        ORDER BY scheduled_at, id
        OFFSET (SELECT count(*) FROM due) LIMIT 1
    ) AS next_in,
    (SELECT at::text FROM clock) AS at
