INSERT INTO djqueue_job (
    id, state, queue, task, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta, unique_key
)
SELECT
    id,
    CASE WHEN due_at > at THEN 'scheduled' ELSE 'available' END,
    queue, task, args, kwargs, priority, max_attempts, at,
    CASE WHEN due_at > at THEN NULL ELSE at END,
    due_at, ends_at, meta, unique_key
FROM input
