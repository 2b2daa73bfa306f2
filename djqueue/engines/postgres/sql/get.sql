-- Read one job, live or finished.
-- Params: id bigint. Returns: all columns, no row if there is no such job.
-- One statement over both tables, without locks: two statements can look into each table at the wrong moment and
-- see a job that is just being finished or retried in neither, or in both.
SELECT
    id, state, queue, task, args::text, kwargs::text, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    scheduled_at, ready_at, expires_at, started_at, finished_at, errors::text, result::text, meta::text, unique_key, cancel_request::text
FROM djqueue_job WHERE id = %(id)s::bigint
UNION ALL
SELECT
    id, state, queue, task, args::text, kwargs::text, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    scheduled_at, ready_at, expires_at, started_at, finished_at, errors::text, result::text, meta::text, unique_key, cancel_request::text
FROM djqueue_finishedjob WHERE id = %(id)s::bigint
