-- Store one job without a unique key, and say whether a worker sleeps on its queue: what insert.sql does, at half its price.
-- Params: one value per column; now timestamptz (null: the database's clock); asks bool; relaxed bool (the commit does not wait for
-- the disk). asks and relaxed only where this statement is a transaction of its own: both last until its end.
-- Returns: id, state, inserted_at, is_asleep (a worker has to be woken after the commit, see wake.sql; false if not asked).
INSERT INTO djqueue_job (
    state, queue, task, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta
)
SELECT
    CASE WHEN due_at > at THEN 'scheduled' ELSE 'available' END,
    %(queue)s, %(task)s, %(args)s::jsonb, %(kwargs)s::jsonb, %(priority)s::smallint, %(max_attempts)s::int, at,
    CASE WHEN due_at > at THEN NULL ELSE at END,
    due_at, ends_at, %(meta)s::jsonb
FROM (
    -- include: job_times
) AS times
WHERE
    -- include: relaxed
-- include: stored_one
