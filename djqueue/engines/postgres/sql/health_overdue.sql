-- Report for how long the oldest job that waits for the stager has been due.
-- Params: none. Returns: one row or none: overdue_seconds.
SELECT extract(epoch FROM clock_timestamp() - GREATEST(scheduled_at, 'epoch'))::float8 AS overdue_seconds
FROM djqueue_job
WHERE ready_at IS NULL AND scheduled_at <= clock_timestamp() AND state <> 'suspended'
ORDER BY scheduled_at, id
LIMIT 1
