-- Record the entries in the code of a scheduler, and read what all schedulers declare.
-- Params: id uuid, name text, entries jsonb (name → fingerprint), kept interval, now timestamptz (null: the database's clock).
-- Returns: id, name, entries text, started_at, silent_seconds of all that were renewed within kept.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
own AS (
    INSERT INTO djqueue_scheduler AS scheduler (id, name, entries, started_at, declared_at)
    SELECT %(id)s::uuid, %(name)s::text, %(entries)s::jsonb, at, at
    FROM clock
    ON CONFLICT (id) DO UPDATE SET entries = EXCLUDED.entries, declared_at = EXCLUDED.declared_at
    RETURNING id, name, entries, started_at
)
SELECT id, name, entries::text, started_at, 0::float8 AS silent_seconds
FROM own
UNION ALL
SELECT id, name, entries::text, started_at, extract(epoch FROM clock.at - declared_at)::float8 AS silent_seconds
FROM djqueue_scheduler, clock
WHERE id <> %(id)s::uuid AND declared_at >= clock.at - %(kept)s::interval
