-- Report the age of the oldest available job of each queue that has available or executing jobs, is paused, or is served.
-- Params: none. Returns: queue, oldest_seconds (null: no job waits), is_paused, is_served (by a worker with a recent beat).
-- Two loose scans of the index djqueue_job_fetch: one descent per queue and one per level of each queue, and past what executes
-- at a level's head. Each level is read, because a low one may starve while jobs of high ones run.
WITH RECURSIVE
-- include: queue_names
,
level AS (
    SELECT queue, 32767::smallint AS priority FROM name WHERE queue IS NOT NULL
    UNION ALL
    SELECT level.queue, (
        SELECT job.priority
        FROM djqueue_job AS job
        WHERE job.queue = level.queue AND job.ready_at IS NOT NULL AND job.priority < level.priority
        ORDER BY job.priority DESC
        LIMIT 1
    )
    FROM level
    WHERE level.priority IS NOT NULL
),
head AS (
    SELECT level.queue, (
        SELECT job.ready_at
        FROM djqueue_job AS job
        WHERE job.queue = level.queue AND job.ready_at IS NOT NULL AND job.priority = level.priority AND job.state <> 'executing'
        ORDER BY job.ready_at, job.id
        LIMIT 1
    ) AS ready_at
    FROM level
),
served AS (
    SELECT DISTINCT jsonb_object_keys(queues) AS queue
    FROM djqueue_worker
    WHERE died_at IS NULL AND NOT is_draining AND beat_at > clock_timestamp() - interval '15 seconds'
),
every AS (
    SELECT queue FROM name WHERE queue IS NOT NULL
    UNION
    SELECT name FROM djqueue_queue WHERE paused_at IS NOT NULL
    UNION
    SELECT queue FROM served
)
SELECT
    every.queue,
    (
        SELECT extract(epoch FROM clock_timestamp() - min(LEAST(GREATEST(head.ready_at, 'epoch'), clock_timestamp())))::float8
        FROM head
        WHERE head.queue = every.queue AND head.ready_at IS NOT NULL
    ) AS oldest_seconds,
    EXISTS (SELECT 1 FROM djqueue_queue WHERE djqueue_queue.name = every.queue AND paused_at IS NOT NULL) AS is_paused,
    every.queue IN (SELECT served.queue FROM served) AS is_served
FROM every
ORDER BY every.queue
