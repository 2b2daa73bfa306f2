-- Start follow-ups whose predecessors have ended: give them the real key.
-- Params: keys text[]; milliseconds int (of the longest wait for a lock; null: as the session says); now timestamptz (null: the database's
-- clock). Returns: id, queue, state of those that were released.
-- Run outside the statements that end jobs, and again by the stager: a follow-up that an application's transaction is storing or
-- changing is skipped, because an ack must not wait for such a transaction.
-- Fails with a unique violation if another job takes the key between the lookup and the update. Then the follow-up waits for that job.
-- Fails with LockNotAvailable if a transaction that is still open has taken the key: there is no SKIP LOCKED for an index entry, so
-- the wait is cut short. Then the follow-up is tried again later.
-- Keys and ids are asked for twice: see _fence.sql.
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
