-- Write the history of jobs that were taken out of the live table (take.sql).
-- Params: one array per column, all of the same length: those of the job as it was taken, and of its outcome as in ack.sql;
-- now timestamptz (null: the database's clock).
-- Returns: nothing. The job belonged to the worker alone, so it is never refused; a second attempt after a lost response finds it stored,
-- or live again, if it was retried meanwhile. OFFSET 0: see insert_held.sql.
INSERT INTO djqueue_finishedjob (
    id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    ready_at, scheduled_at, expires_at, started_at, finished_at, errors, result, meta
)
SELECT
    id, state, queue, task, args, kwargs, priority, CASE WHEN is_spent THEN attempt ELSE attempt - 1 END, max_attempts, claim,
    attempted_by, attempted_at, inserted_at, ready_at, scheduled_at, expires_at,
    at - started_ago * interval '1 second', at - finished_ago * interval '1 second',
    CASE WHEN error IS NULL THEN errors ELSE errors || jsonb_set(error, '{at}', to_jsonb(at - finished_ago * interval '1 second'), false) END, result, meta
FROM
    (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock,
    unnest(
        %(id)s::bigint[], %(state)s::text[], %(queue)s::text[], %(task)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[],
        %(priority)s::smallint[], %(attempt)s::int[], %(max_attempts)s::int[], %(claim)s::bigint[], %(attempted_by)s::uuid[],
        %(attempted_at)s::timestamptz[], %(inserted_at)s::timestamptz[], %(ready_at)s::timestamptz[],
        %(scheduled_at)s::timestamptz[],
        %(expires_at)s::timestamptz[], %(errors)s::jsonb[], %(meta)s::jsonb[], %(started_ago)s::float8[],
        %(finished_ago)s::float8[], %(result)s::jsonb[], %(error)s::jsonb[], %(is_spent)s::bool[]
    ) AS o (
        id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
        ready_at, scheduled_at, expires_at, errors, meta, started_ago, finished_ago, result, error, is_spent
    )
WHERE NOT EXISTS (SELECT 1 FROM djqueue_job AS live WHERE live.id = o.id OFFSET 0)
ON CONFLICT (id) DO NOTHING
