-- Add an entry to the crontab, unless its name is taken.
-- Params: one per column; by text; now timestamptz (null: the database's clock).
-- Returns: its id; no row when the name is taken.
INSERT INTO djqueue_cronentry (
    name, task, args, kwargs, queue, priority, expression, timezone, misfire, misfire_window_seconds, overlap, jitter_seconds,
    start_at, end_at, max_runs, code, created_at, created_by, changed_at, changed_by, planned_from
)
SELECT
    %(name)s::text, %(task)s::text, %(args)s::jsonb, %(kwargs)s::jsonb, %(queue)s::text, %(priority)s::smallint, %(expression)s::text, %(timezone)s::text,
    %(misfire)s::text, %(misfire_window_seconds)s::int, %(overlap)s::text, %(jitter_seconds)s::int, %(start_at)s::timestamptz, %(end_at)s::timestamptz,
    %(max_runs)s::int, %(code)s::jsonb, at, %(by)s::text, at, %(by)s::text, at
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (name) DO NOTHING
RETURNING id
