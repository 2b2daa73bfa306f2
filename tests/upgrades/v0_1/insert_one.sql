INSERT INTO djqueue_job (
    state, queue, task, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta
)
SELECT
    CASE WHEN due_at > at THEN 'scheduled' ELSE 'available' END,
    %(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(priority)s::smallint, %(max_attempts)s::int, at,
    CASE WHEN due_at > at THEN NULL ELSE at END,
    due_at, ends_at, %(meta)s::jsonb
FROM (
    SELECT
        at,
        COALESCE(
            %(scheduled_at)s::timestamptz, CASE WHEN %(delay)s::interval > interval '0' THEN at + %(delay)s::interval END
        ) AS due_at,
        COALESCE(%(expires_at)s::timestamptz, at + %(max_age)s::interval) AS ends_at
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
) AS times
WHERE
    NOT %(relaxed)s::bool OR set_config('synchronous_commit', 'off', true) = 'off'
RETURNING
    id, state, inserted_at,
    %(asks)s::bool AND state = 'available'
    AND NOT pg_try_advisory_xact_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS is_asleep
