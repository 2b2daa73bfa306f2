-- Put jobs back into the live table that were taken out of it (take.sql) and never begun.
-- Params: one array per column, all of the same length: those of the job as it was taken, delay (seconds until it may be looked at
-- again), note (an object to merge into meta, may be null); now timestamptz (null: the database's clock).
-- Returns: nothing. A second try after a lost answer finds it stored. The attempt is given back, the claim is not. A unique key was
-- given up when the job was taken.
INSERT INTO djqueue_job (
    id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, inserted_at, ready_at, scheduled_at, expires_at,
    errors, meta
)
SELECT
    id, CASE WHEN delay > 0 THEN 'scheduled' ELSE 'available' END, queue, task, args, kwargs, priority, attempt - 1, max_attempts,
    claim, inserted_at, CASE WHEN delay > 0 THEN NULL ELSE at END,
    CASE WHEN delay > 0 THEN at + delay * interval '1 second' ELSE scheduled_at END, expires_at, errors,
    CASE WHEN note IS NULL THEN meta ELSE meta || note END
FROM
    (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock,
    unnest(
        %(id)s::bigint[], %(queue)s::text[], %(task)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[], %(priority)s::smallint[],
        %(attempt)s::int[], %(max_attempts)s::int[], %(claim)s::bigint[], %(inserted_at)s::timestamptz[],
        %(scheduled_at)s::timestamptz[], %(expires_at)s::timestamptz[], %(errors)s::jsonb[], %(meta)s::jsonb[],
        %(delay)s::float8[], %(note)s::jsonb[]
    ) AS o (
        id, queue, task, args, kwargs, priority, attempt, max_attempts, claim, inserted_at, scheduled_at, expires_at, errors, meta,
        delay, note
    )
ON CONFLICT (id) DO NOTHING
