-- List the jobs that hold these unique keys beyond their lives, and whether the hold is over.
-- Params: keys text[]; completed_only bool (false: a job holds its key regardless of how it ended);
-- now timestamptz (null: the database's clock).
-- Returns: key, job_id, state, inserted_at, is_over.
-- A job that was cancelled before it ran gives its key back, and so does a job that is no longer kept, if the key was held only as
-- long as the job was kept. Both tables are read in one statement: see get.sql.
SELECT
    held.key, held.job_id, COALESCE(job.state, 'completed') AS state, COALESCE(job.inserted_at, clock.at) AS inserted_at,
    NOT COALESCE(job.is_live, false) AND (
        COALESCE(held.expires_at <= clock.at, job.state IS NULL)
        OR COALESCE(job.state = 'cancelled' AND job.started_at IS NULL, false)
        OR COALESCE(job.state <> 'completed' AND %(completed_only)s::bool, false)
    ) AS is_over
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
CROSS JOIN djqueue_uniquekey AS held
LEFT JOIN LATERAL (
    SELECT state, inserted_at, started_at, true AS is_live FROM djqueue_job WHERE id = held.job_id
    UNION ALL
    SELECT state, inserted_at, started_at, false AS is_live FROM djqueue_finishedjob WHERE id = held.job_id
) AS job ON true
WHERE held.key = ANY(%(keys)s::text[])
