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
