-- Let follow-ups begin whose predecessors have ended: give them the real key.
-- Params: keys text[]; milliseconds int (of the longest wait for a lock; null: as the session says); now timestamptz (null: the database's
-- clock). Returns: id, queue, state of those that were released.
-- Run outside of the statements that end jobs, and again by whoever stages: a follow-up that its enqueuer has not committed yet, or
-- is just changing, is not waited for, because an ack may not wait for an application's transaction.
-- Fails with a unique violation when somebody takes the key between the look and the update. Then the follow-up waits for that job.
-- Fails with LockNotAvailable when a transaction that is still open has taken the key: an index cannot pass over it, as a lock on a row
-- can be passed over, so the wait is cut short. Then the follow-up is tried again later.
-- Keys and ids are asked for twice: see ack.sql.
WITH clock AS MATERIALIZED (
    SELECT
        COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at,
        CASE WHEN %(milliseconds)s::int IS NOT NULL THEN set_config('lock_timeout', %(milliseconds)s::text, true) END AS setting
),
next AS MATERIALIZED (
    SELECT job.id, job.scheduled_at > (SELECT at FROM clock) AS is_early
    FROM unnest(%(keys)s::text[]) AS ended (key)
    JOIN djqueue_job AS job ON job.unique_key = ended.key || ':next'
    WHERE
        job.unique_key = ANY (ARRAY(SELECT key || ':next' FROM unnest(%(keys)s::text[]) AS key)) AND job.state = 'suspended'
        AND NOT EXISTS (SELECT 1 FROM djqueue_job AS holder WHERE holder.unique_key = ended.key OFFSET 0)
    ORDER BY job.unique_key
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE djqueue_job AS job
SET
    unique_key = left(job.unique_key, -5),
    state = CASE WHEN next.is_early THEN 'scheduled' ELSE 'available' END,
    ready_at = CASE WHEN next.is_early THEN NULL ELSE (SELECT at FROM clock) END
FROM next
WHERE job.id = ANY (ARRAY(SELECT id FROM next)) AND job.id = next.id
RETURNING job.id, job.queue, job.state
