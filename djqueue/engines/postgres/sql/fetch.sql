-- Claim up to %(limit)s available jobs of one queue for a worker, counting the attempt and raising the claim.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock).
-- Returns: what an execution needs, in run order. Nothing when the worker is not registered or is dead, or the queue is paused.
-- The CTE with FOR UPDATE is a fence: as a sub-select in IN (...) the planner may run it again per outer row and
-- lock, and so claim, more rows than the limit.
-- Two phrases keep the planner on the index djqueue_job_fetch, whatever ANALYZE last saw; otherwise it reads all jobs and
-- sorts them (45 us per job instead of 14 at 100,000 waiting jobs, and growing with them):
-- "state <> 'executing'" says "state = 'available'" of a job with ready_at, but the planner, which has no statistics of
-- state, expects 0.5 % of the rows from an equation and 99.5 % from an inequality;
-- a LIMIT that it cannot know makes it plan for a tenth of the rows, where a number above its estimate of the queue makes it plan
-- for all of them.
-- The rows are found again by their ctid: they cannot move, because they are locked, and an index look-up per row is saved.
-- A job that was claimed and put back between the snapshot and the lock is locked at a place that the snapshot does not see;
-- it is left for the next fetch.
-- Whether the queue is paused is asked once per fetch, of a table with a row per queue at most: a pause needs no message to anybody,
-- holds after a restart and works without LISTEN.
-- The update changes no indexed column and keeps the row's length: a HOT update.
WITH locked AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        queue = %(queue)s AND ready_at IS NOT NULL AND state <> 'executing'
        AND EXISTS (SELECT 1 FROM djqueue_worker WHERE id = %(worker)s AND died_at IS NULL)
        AND NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
    ORDER BY priority DESC, ready_at, id
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
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
        job.inserted_at, job.started_at, job.scheduled_at, job.expires_at, job.attempted_at, job.errors, job.meta, job.ready_at
)
SELECT
    id, claim, queue, task, args::text, kwargs::text, attempt, max_attempts, priority,
    inserted_at, started_at, scheduled_at, expires_at, attempted_at, errors::text, meta::text, ready_at
FROM claimed
ORDER BY priority DESC, ready_at, id
