-- Read the crontab.
-- Params: names text[] (null: all entries).
-- Returns: all columns of the entries, by name.
SELECT
    id, name, task, args::text, kwargs::text, queue, priority, expression, timezone, misfire, misfire_window_seconds, overlap,
    jitter_seconds, start_at, end_at, max_runs, code::text, revision, created_at, created_by, changed_at, changed_by, paused_at,
    paused_by, pause_reason, disabled_at, finished_at, planned_from, next_at, last_nominal_at, last_outcome, runs
FROM djqueue_cronentry
WHERE %(names)s::text[] IS NULL OR name = ANY (%(names)s::text[])
ORDER BY name
