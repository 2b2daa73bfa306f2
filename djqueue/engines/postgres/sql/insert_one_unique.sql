-- Store one job with a unique key, unless a live job holds the key: see insert_one.sql, which has no ON CONFLICT because that costs a
-- tenth more, and insert.sql about the conflict.
-- Params: one value per column; now timestamptz (null: the database's clock); asks bool; relaxed bool (the commit does not wait for
-- the disk). asks and relaxed only where this statement is a transaction of its own: both last until its end.
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
    SELECT
        at,
        COALESCE(
            %(scheduled_at)s::timestamptz, CASE WHEN %(delay)s::interval > interval '0' THEN at + %(delay)s::interval END
        ) AS due_at,
        COALESCE(%(expires_at)s::timestamptz, at + %(max_age)s::interval) AS ends_at
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
) AS times
WHERE NOT %(relaxed)s::bool OR set_config('synchronous_commit', 'off', true) = 'off'
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
RETURNING
    id, state, inserted_at,
    %(asks)s::bool AND state = 'available'
    AND NOT pg_try_advisory_xact_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS is_asleep
