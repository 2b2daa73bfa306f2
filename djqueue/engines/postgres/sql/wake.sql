-- Wake the workers that sleep on these queues, if there are any.
-- Params: queues text[]. Run it after the commit that made the jobs visible, never before.
-- A sleeper holds the advisory lock of its queue (mark.sql). Only if the shared attempt fails a worker sleeps and is
-- notified: NOTIFY takes a database-wide lock during commit, which a busy queue must not pay. Mark-then-look of the
-- sleeper against commit-then-ask here leaves no moment in which a job is missed.
-- synchronous_commit off: otherwise a commit with a notification waits for the disk, and the sleeper with it. Nothing is written
-- that could be lost.
WITH setting AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
)
SELECT count(pg_notify('djqueue:' || md5(current_schema()), queue))
FROM setting, unnest(%(queues)s::text[]) AS queue
WHERE NOT pg_try_advisory_xact_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue))
