-- Mark one queue as soon as the transactions that are storing jobs in it (insert_one.sql) have committed.
-- Params: queue text, milliseconds int (LockNotAvailable after so long). While this statement waits, a new
-- transaction that stores a job is refused the lock and wakes this worker: the wait ends with the transactions already under way.
-- Only for a moment: a waiting statement receives no notification and holds a snapshot. The lock itself is the session's.
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', %(milliseconds)s::text, true)
)
SELECT pg_advisory_lock(hashtext('djqueue:' || current_schema()), hashtext(%(queue)s)) FROM patience
