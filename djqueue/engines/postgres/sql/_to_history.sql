-- Move jobs to the history, in the statement that deletes them, so that a reader sees each job in exactly one of the tables. The
-- statement that includes this adds what the end of the job decides: state, attempt, attempted_at, started_at, finished_at, errors,
-- result and cancel_request, in this order.
INSERT INTO djqueue_finishedjob (
    -- include: carried
    max_attempts, ready_at, scheduled_at, expires_at, unique_key,
    state, attempt, attempted_at, started_at, finished_at, errors, result, cancel_request
)
SELECT
    -- include: carried
    max_attempts, ready_at, scheduled_at, expires_at, unique_key,
