-- Claim the locked jobs: count the attempt, raise the claim. The update changes no indexed column and keeps the row's length: a HOT
-- update.
-- The rows are found again by their ctid: they cannot move, because they are locked, and an index lookup per row is saved.
-- A job that was claimed and put back between the snapshot and the lock is locked at a position that the snapshot does not see;
-- it is left for the next fetch.
claimed AS (
    UPDATE djqueue_job AS job
    SET
        state = 'executing',
        attempt = job.attempt + 1,
        claim = job.claim + 1,
        attempted_by = %(worker)s,
        attempted_at = COALESCE(%(now)s::timestamptz, clock_timestamp())
    WHERE job.ctid = ANY (ARRAY(SELECT ctid FROM locked)) AND job.state <> 'executing'
    RETURNING
        job.id, job.claim, job.queue, job.task, job.args, job.kwargs, job.attempt, job.max_attempts, job.priority,
        job.inserted_at, job.started_at, job.scheduled_at, job.expires_at, job.attempted_at, job.errors, job.meta, job.ready_at,
        job.flow_id, job.is_awaited
)
SELECT
    -- include: claimed_columns
FROM claimed
ORDER BY priority DESC, ready_at, id
