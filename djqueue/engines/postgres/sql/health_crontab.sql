-- Report how many entries of the crontab are active and when a scheduler last looked at it.
-- Params: none. Returns: one row: entries, scheduler_seconds (null: no scheduler is known).
SELECT
    (
        SELECT count(*)
        FROM djqueue_cronentry
        WHERE paused_at IS NULL AND disabled_at IS NULL AND finished_at IS NULL
    ) AS entries,
    (SELECT extract(epoch FROM clock_timestamp() - max(declared_at))::float8 FROM djqueue_scheduler) AS scheduler_seconds
