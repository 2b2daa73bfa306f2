-- Put jobs that were taken out of the live table (take.sql) and never started back into it.
-- Params: one array per column, all of the same length: those of the job as it was taken, unique_key (may be null), delay (seconds until
-- it is due again), note (an object to merge into meta, may be null); now timestamptz (null: the database's clock).
-- Returns: nothing. The attempt is given back, the claim is not. A job gets its unique key again, unless another job has taken it since: then
-- it comes back without a key, because both jobs were accepted. If an open transaction is taking the key, this fails after 100 ms.
-- OFFSET 0: see insert_held.sql.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at, set_config('lock_timeout', '100', true) AS setting
)
INSERT INTO djqueue_job (
    id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, inserted_at, ready_at, scheduled_at, expires_at,
    errors, meta, unique_key
)
SELECT
    id, CASE WHEN delay > 0 THEN 'scheduled' ELSE 'available' END, queue, task, args, kwargs, priority, attempt - 1, max_attempts,
    claim, inserted_at, CASE WHEN delay > 0 THEN NULL ELSE at END,
    CASE WHEN delay > 0 THEN at + delay * interval '1 second' ELSE scheduled_at END, expires_at, errors,
    CASE WHEN note IS NULL THEN meta ELSE meta || note END,
    CASE
        WHEN EXISTS (SELECT 1 FROM djqueue_job AS holder WHERE holder.unique_key = o.unique_key OFFSET 0) THEN NULL
        WHEN row_number() OVER (PARTITION BY unique_key ORDER BY id) > 1 THEN NULL
        ELSE unique_key
    END
FROM
    clock,
    unnest(
        %(id)s::bigint[], %(queue)s::text[], %(task)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[], %(priority)s::smallint[],
        %(attempt)s::int[], %(max_attempts)s::int[], %(claim)s::bigint[], %(inserted_at)s::timestamptz[],
        %(scheduled_at)s::timestamptz[], %(expires_at)s::timestamptz[], %(errors)s::jsonb[], %(meta)s::jsonb[],
        %(delay)s::float8[], %(note)s::jsonb[], %(unique_key)s::text[]
    ) AS o (
        id, queue, task, args, kwargs, priority, attempt, max_attempts, claim, inserted_at, scheduled_at, expires_at, errors, meta,
        delay, note, unique_key
    )
ON CONFLICT (id) DO NOTHING
