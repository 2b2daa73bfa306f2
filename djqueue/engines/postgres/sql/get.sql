-- Read one job, live or finished.
-- Params: id bigint. Returns: all columns, no row if there is no such job.
-- One statement over both tables, without locks: two statements can look into each table at the wrong moment and
-- see a job that is just being finished or retried in neither, or in both.
SELECT
    -- include: job_columns
FROM djqueue_job WHERE id = %(id)s::bigint
UNION ALL
SELECT
    -- include: job_columns
FROM djqueue_finishedjob WHERE id = %(id)s::bigint
