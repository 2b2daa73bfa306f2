-- Keep one job per key that begins when the job that executes under the key has ended.
-- Params: as those of insert.sql. Returns: unique_key (that of the executing job), id, state, inserted_at of those stored; a key
-- that has a follow-up already is left out.
-- A row like any other, suspended under a key of its own; release.sql gives it the real key. A due time is kept until then.
INSERT INTO djqueue_job (
    state, queue, task, args, kwargs, priority, max_attempts, inserted_at, scheduled_at, expires_at, meta, unique_key
)
SELECT 'suspended', queue, task, args, kwargs, priority, max_attempts, at, due_at, ends_at, meta, unique_key || ':next'
FROM (
    -- include: job_input
) AS input
ORDER BY unique_key
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
RETURNING left(unique_key, -5) AS unique_key, id, state, inserted_at
