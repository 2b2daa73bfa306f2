-- Store one job without a unique key: what insert.sql does, at half its price.
-- Params: one value per column; now timestamptz (null: the database's clock).
-- Returns: id, state, inserted_at.
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
RETURNING id, state, inserted_at
