-- Make scheduled and retryable jobs available now.
-- Params: ids bigint[], only text[] (null: regardless of their state), now timestamptz (null: the database's clock).
-- Returns: id, queue of those that are available now. There is room for one more attempt, as in retry.sql.
-- Waits for transactions that hold a row (the stager, a cancel), and uses the state that the job has then.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE
        state IN ('scheduled', 'retryable') AND
        -- include: chosen
)
UPDATE djqueue_job AS job
SET
    state = 'available',
    ready_at = COALESCE(%(now)s::timestamptz, clock_timestamp()),
    max_attempts = GREATEST(job.max_attempts, job.attempt + 1)
FROM locked
WHERE job.id = locked.id
RETURNING job.id, job.queue
