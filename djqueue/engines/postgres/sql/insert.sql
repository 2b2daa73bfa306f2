-- Store jobs, and say in input order what became of each.
-- Params: one array per column, all of the same length; now timestamptz (null: the database's clock); relaxed bool (the commit does not
-- wait for the disk; only where this statement is a transaction of its own).
-- Returns: id, state, inserted_at, was_duplicate.
-- clock_timestamp(), not now(): in a long transaction now() is old and the job would jump the queue.
-- ON CONFLICT waits for an uncommitted holder of the key, and inserts if that one rolls back. Keys are inserted in their order,
-- or two transactions with the same keys could wait for each other; run order is that of the ids, which follow the input.
-- A duplicate has no id here: its holder may be younger than this statement's snapshot. See holders.sql.
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
    ORDER BY unique_key, place
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, state, inserted_at
)
SELECT inserted.id, inserted.state, COALESCE(inserted.inserted_at, input.at) AS inserted_at, inserted.id IS NULL AS was_duplicate
FROM input
LEFT JOIN inserted ON inserted.id = input.id
ORDER BY input.place
