-- Store one job with a unique key, unless a live job holds the key: see insert_one.sql, which has no ON CONFLICT because that costs a
-- tenth more, and insert.sql about the conflict.
-- Params: those of insert_one.sql, and unique_key.
-- Returns: no row if the key is held, else id, state, inserted_at, is_asleep (false if not asked).
INSERT INTO djqueue_job (
    state, queue, task, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta, unique_key
)
SELECT
    CASE WHEN due_at > at THEN 'scheduled' ELSE 'available' END,
    %(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(priority)s::smallint, %(max_attempts)s::int, at,
    CASE WHEN due_at > at THEN NULL ELSE at END,
    due_at, ends_at, %(meta)s::jsonb, %(unique_key)s
FROM (
    -- include: job_times
) AS times
WHERE
    -- include: relaxed
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
-- include: stored_one
