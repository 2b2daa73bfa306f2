-- An entry of the crontab as stored, in the order of cron.py.
id, name, task, args::text, kwargs::text, queue, priority, expression, timezone, misfire, misfire_window_seconds, overlap,
jitter_seconds, start_at, end_at, max_runs, code::text, revision, created_at, created_by, changed_at, changed_by, paused_at,
paused_by, pause_reason, disabled_at, finished_at, planned_from, next_at, last_nominal_at, last_outcome, runs
