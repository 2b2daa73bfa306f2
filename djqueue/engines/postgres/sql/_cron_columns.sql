-- An entry of the crontab as stored, in the order of the fields of CronEntry, with those of its definition in place of it.
id, name, task, expression, timezone, args::text, kwargs::text, queue, priority, misfire, misfire_window_seconds, overlap,
jitter_seconds, start_at, end_at, max_runs, revision, code::text, created_at, created_by, changed_at, changed_by, paused_at,
paused_by, pause_reason, disabled_at, finished_at, planned_from, next_at, last_nominal_at, last_outcome, runs
