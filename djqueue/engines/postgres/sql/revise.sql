-- Update waiting jobs from a duplicate that was enqueued: the newest values, a new time, or both.
-- Params: as those of insert.sql, one job per key; replace bool, reschedule bool; suffix text ('', or ':next' for follow-ups).
-- Returns: unique_key, id, state, inserted_at of the jobs that were revised, queue, whether the job is available and whether it was before.
-- An executing job is neither changed nor locked: its worker must be able to record the outcome before the caller commits. Waits
-- for other callers that revise the same job, so that the last one wins. Locked in the order of the keys.
-- A follow-up takes the newest time with the newest values. A job that is replaced keeps its time, unless the new values
-- have a later one.
-- A job that is available and stays so keeps its position in the queue; one that failed before stays retryable until it is due.
-- Keys and ids are asked for twice: see _fence.sql.
-- There is always room for one more attempt. What the engine stored in meta stays there.
WITH input AS MATERIALIZED (
    -- include: job_input
),
locked AS MATERIALIZED (
    SELECT
        job.id AS job_id, job.ready_at IS NOT NULL AS was_ready, input.*,
        %(reschedule)s::bool OR job.state = 'suspended'
        OR (%(replace)s::bool AND COALESCE(input.due_at > GREATEST(input.at, job.scheduled_at), false)) AS is_moved
    FROM input
    JOIN djqueue_job AS job ON job.unique_key = input.unique_key || %(suffix)s::text
    WHERE job.unique_key = ANY (ARRAY(SELECT unique_key || %(suffix)s::text FROM input)) AND job.state <> 'executing'
    ORDER BY job.unique_key
    FOR NO KEY UPDATE OF job
)
UPDATE djqueue_job AS job
SET
    args = CASE WHEN %(replace)s::bool THEN fresh.args ELSE job.args END,
    kwargs = CASE WHEN %(replace)s::bool THEN fresh.kwargs ELSE job.kwargs END,
    priority = CASE WHEN %(replace)s::bool THEN fresh.priority ELSE job.priority END,
    max_attempts = CASE WHEN %(replace)s::bool THEN GREATEST(fresh.max_attempts, job.attempt + 1) ELSE job.max_attempts END,
    expires_at = CASE WHEN %(replace)s::bool THEN fresh.ends_at ELSE job.expires_at END,
    meta = CASE WHEN %(replace)s::bool THEN job.meta || fresh.meta ELSE job.meta END,
    scheduled_at = CASE WHEN fresh.is_moved THEN fresh.due_at ELSE job.scheduled_at END,
    ready_at = CASE
        WHEN job.state = 'suspended' THEN NULL
        WHEN NOT fresh.is_moved THEN job.ready_at
        WHEN fresh.due_at > fresh.at THEN NULL
        ELSE COALESCE(job.ready_at, fresh.at)
    END,
    state = CASE
        WHEN job.state = 'suspended' OR NOT fresh.is_moved THEN job.state
        WHEN fresh.due_at > fresh.at THEN CASE WHEN job.state = 'retryable' THEN 'retryable' ELSE 'scheduled' END
        ELSE 'available'
    END
FROM locked AS fresh
WHERE job.id = ANY (ARRAY(SELECT job_id FROM locked)) AND job.id = fresh.job_id
RETURNING
    fresh.unique_key, job.id, job.state, job.inserted_at, job.queue,
    job.ready_at IS NOT NULL AS is_ready, fresh.was_ready
