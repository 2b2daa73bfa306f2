-- Mark the end of a look on one queue as soon as those have committed who are storing jobs into it (insert_one.sql).
-- Params: queue text, milliseconds int (LockNotAvailable after so long). While somebody waits here, whoever comes to store a job
-- finds the lock refused and wakes us: the wait is for those that are under way, and no stream of jobs can prolong it.
-- For a moment only: a waiting statement hears no notification and holds a snapshot. The lock itself is the session's.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(milliseconds)s::text, true)
)
SELECT pg_advisory_lock(hashtext('djqueue:' || current_schema()), hashtext(%(queue)s)) FROM patience
