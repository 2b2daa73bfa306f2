-- What became of one job, and whether a worker sleeps on its queue.
-- The lock is held until the commit, which saves a transaction: a worker that wants to mark its sleep meanwhile (mark.sql)
-- waits for that commit, and sees the job in the look that follows.
RETURNING
    id, state, inserted_at,
    %(asks)s::bool AND state = 'available'
    AND NOT pg_try_advisory_xact_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS is_asleep
