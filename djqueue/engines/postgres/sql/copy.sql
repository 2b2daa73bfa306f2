-- Store jobs whose ids are reserved (reserve.sql), as lines of text: what differs from job to job first, then what they share.
-- None of these columns may hold an empty string, so the empty string can stand for null, and backslashes can be doubled wherever
-- they are.
COPY djqueue_job (
    id, args, kwargs, state, queue, task, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta
) FROM STDIN WITH (FORMAT text, NULL '')
