WITH locked AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        queue = %(queue)s AND ready_at IS NOT NULL AND state <> 'executing'
        AND EXISTS (SELECT 1 FROM djqueue_worker WHERE id = %(worker)s AND died_at IS NULL)
        AND
        NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = %(queue)s AND paused_at IS NOT NULL)
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
