-- Keep one job per key that begins when the job which executes under the key has ended.
-- Params: as those of insert.sql. Returns: unique_key (that of the executing job), id, state, inserted_at of those stored; a key
-- that has a follow-up already is left out.
-- A row like any other, suspended under a key of its own; release.sql gives it the real one. A due time is kept for then.
INSERT INTO djqueue_job (
    state, queue, task, args, kwargs, priority, max_attempts, inserted_at, scheduled_at, expires_at, meta, unique_key
)
SELECT
    'suspended', i.queue, i.task, i.args, i.kwargs, i.priority, i.max_attempts, t.at,
    COALESCE(i.scheduled_at, CASE WHEN i.delay > interval '0' THEN t.at + i.delay END),
    COALESCE(i.expires_at, t.at + i.max_age), i.meta, i.unique_key || ':next'
FROM (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    WHERE NOT %(relaxed)s::bool OR set_config('synchronous_commit', 'off', true) = 'off'
) AS t
CROSS JOIN unnest(
    %(task)s::text[], %(queue)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[], %(priority)s::smallint[],
    %(max_attempts)s::int[], %(scheduled_at)s::timestamptz[], %(delay)s::interval[],
    %(expires_at)s::timestamptz[], %(max_age)s::interval[], %(meta)s::jsonb[], %(unique_key)s::text[]
) AS i (task, queue, args, kwargs, priority, max_attempts, scheduled_at, delay, expires_at, max_age, meta, unique_key)
ORDER BY i.unique_key
ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
RETURNING left(unique_key, -5) AS unique_key, id, state, inserted_at
