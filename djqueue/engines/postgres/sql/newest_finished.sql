-- Read the finished jobs with the highest ids, highest first.
-- Params: before bigint (ids below it), those of _filter.sql, limit int. Returns: all columns.
SELECT
    -- include: job_columns
FROM djqueue_finishedjob
WHERE
    id < %(before)s::bigint AND
    -- include: filter age=finished_at
ORDER BY id DESC
LIMIT %(limit)s
