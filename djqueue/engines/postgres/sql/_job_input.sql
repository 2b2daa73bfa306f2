-- The jobs of a statement with one array per column, with the time of the insert (at) and what their times amount to.
-- clock_timestamp(), not now(): in a long transaction now() is old and the job would jump the queue.
SELECT
    i.*,
    t.at,
    COALESCE(i.scheduled_at, CASE WHEN i.delay > interval '0' THEN t.at + i.delay END) AS due_at,
    COALESCE(i.expires_at, t.at + i.max_age) AS ends_at
FROM (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    WHERE
        -- include: relaxed
) AS t
CROSS JOIN unnest(
    %(task)s::text[], %(queue)s::text[], %(args)s::jsonb[], %(kwargs)s::jsonb[], %(priority)s::smallint[],
    %(max_attempts)s::int[], %(scheduled_at)s::timestamptz[], %(delay)s::interval[],
    %(expires_at)s::timestamptz[], %(max_age)s::interval[], %(meta)s::jsonb[], %(unique_key)s::text[]
) WITH ORDINALITY AS i (
    task, queue, args, kwargs, priority, max_attempts, scheduled_at, delay, expires_at, max_age, meta, unique_key, place
)
