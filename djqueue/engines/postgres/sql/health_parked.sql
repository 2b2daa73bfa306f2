-- List some jobs that workers have parked, because no worker knows their task or their row cannot be read.
-- Params: none. Returns: id, task, reason.
-- Reads every job that waits for its time; the caller sets a time limit.
SELECT id, task, left(meta ->> 'parked', 500) AS reason
FROM djqueue_job
WHERE ready_at IS NULL AND state = 'scheduled' AND jsonb_exists(meta, 'parked')
ORDER BY scheduled_at, id
LIMIT 10
