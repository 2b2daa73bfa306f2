-- Remove unique keys that no job holds any more.
-- Params: limit int, now timestamptz (null: the database's clock). Returns: one row: expired, orphaned.
-- A live job holds its key by its own row and does not need this one. Keys without an expiry are removed when their job is no longer
-- kept, or did not complete; the keys of the oldest jobs are checked, because these leave the history first.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
expired AS MATERIALIZED (
    SELECT key
    FROM djqueue_uniquekey
    WHERE expires_at <= (SELECT at FROM clock)
    ORDER BY expires_at, job_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
oldest AS MATERIALIZED (
    SELECT key, job_id
    FROM djqueue_uniquekey
    WHERE expires_at IS NULL
    ORDER BY job_id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
orphaned AS MATERIALIZED (
    SELECT key
    FROM oldest
    WHERE
        NOT EXISTS (SELECT 1 FROM djqueue_job AS job WHERE job.id = oldest.job_id)
        AND NOT EXISTS (SELECT 1 FROM djqueue_finishedjob AS job WHERE job.id = oldest.job_id AND job.state = 'completed')
),
removed AS (
    DELETE FROM djqueue_uniquekey WHERE key IN (SELECT key FROM expired UNION ALL SELECT key FROM orphaned)
)
SELECT (SELECT count(*) FROM expired) AS expired, (SELECT count(*) FROM orphaned) AS orphaned
