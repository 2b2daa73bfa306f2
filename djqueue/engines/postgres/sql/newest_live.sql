-- Read the live jobs with the highest ids, highest first.
-- Params: before bigint (ids below it), those of _filter.sql, limit int. Returns: all columns.
SELECT
    -- include: job_columns
FROM djqueue_job
WHERE
    id < %(before)s::bigint AND
    -- include: filter age=inserted_at
ORDER BY id DESC
LIMIT %(limit)s
