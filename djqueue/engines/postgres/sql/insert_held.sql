-- Store jobs whose unique keys are held beyond the job's life, and say in input order what became of each.
-- Params: as those of insert.sql, and window interval (how long the key is held from now; null: as long as the job is kept).
-- Returns: id, state, inserted_at, was_duplicate, void_id. See insert.sql about all that the two have in common.
-- The key's row comes first: it is refused while another one stands, expired or not (unique_key.sql tells them apart, for an
-- upsert would lock the rows of other people's keys until the caller's commit). The job comes second, and may be refused too: a
-- live job can hold a key that has no row, after a retry or under another rule. The look for it only makes that rare. Then the
-- row stands for a job that does not exist; void_id tells, and unhold.sql removes it.
-- OFFSET 0: one look into the index per key. Otherwise the planner may make a join of it, and read the whole live table.
WITH input AS MATERIALIZED (
    SELECT
        i.*,
        t.at,
        COALESCE(i.scheduled_at, CASE WHEN i.delay > interval '0' THEN t.at + i.delay END) AS due_at,
        COALESCE(i.expires_at, t.at + i.max_age) AS ends_at,
        nextval((SELECT pg_get_serial_sequence('djqueue_job', 'id'))) AS id
    FROM (
        SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
        WHERE NOT %(relaxed)s::bool OR set_config('synchronous_commit', 'off', true) = 'off'
    ) AS t
    CROSS JOIN unnest(
        %(task)s::text[], %(queue)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[], %(priority)s::smallint[],
        %(max_attempts)s::int[], %(scheduled_at)s::timestamptz[], %(delay)s::interval[],
        %(expires_at)s::timestamptz[], %(max_age)s::interval[], %(meta)s::jsonb[], %(unique_key)s::text[]
    ) WITH ORDINALITY AS i (
        task, queue, args, kwargs, priority, max_attempts, scheduled_at, delay, expires_at, max_age, meta, unique_key, place
    )
),
held AS (
    INSERT INTO djqueue_uniquekey (key, job_id, expires_at)
    SELECT unique_key, id, at + %(window)s::interval
    FROM input
    WHERE
        unique_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM djqueue_job AS live WHERE live.unique_key = input.unique_key OFFSET 0)
    ORDER BY unique_key, place
    ON CONFLICT (key) DO NOTHING
    RETURNING job_id
),
inserted AS (
    INSERT INTO djqueue_job (
        id, state, queue, task, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at, expires_at, meta, unique_key
    )
    SELECT
        id,
        CASE WHEN due_at > at THEN 'scheduled' ELSE 'available' END,
        queue, task, args, kwargs, priority, max_attempts, at,
        CASE WHEN due_at > at THEN NULL ELSE at END,
        due_at, ends_at, meta, unique_key
    FROM input
    WHERE unique_key IS NULL OR id IN (SELECT job_id FROM held)
    ORDER BY unique_key, place
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, state, inserted_at
)
SELECT
    inserted.id, inserted.state, COALESCE(inserted.inserted_at, input.at) AS inserted_at, inserted.id IS NULL AS was_duplicate,
    CASE WHEN inserted.id IS NULL THEN held.job_id END AS void_id
FROM input
LEFT JOIN held ON held.job_id = input.id
LEFT JOIN inserted ON inserted.id = input.id
ORDER BY input.place
