-- Take up to %(limit)s available jobs of one queue out of the live table, for a queue whose jobs run at most once.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock).
-- Returns: as fetch.sql, which see for every phrase that looks odd, and unique_key. From here on the job is in no table, until record.sql writes its
-- history: a worker that dies meanwhile takes it along, and nobody can run it again.
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
taken AS (
    DELETE FROM djqueue_job AS job
    WHERE job.ctid = ANY (ARRAY(SELECT ctid FROM locked)) AND job.state <> 'executing'
    RETURNING
        job.id, job.claim + 1 AS claim, job.queue, job.task, job.args, job.kwargs, job.attempt + 1 AS attempt, job.max_attempts,
        job.priority, job.inserted_at, job.started_at, job.scheduled_at, job.expires_at,
        COALESCE(%(now)s::timestamptz, clock_timestamp()) AS attempted_at, job.errors, job.meta, job.ready_at, job.unique_key
)
SELECT
    id, claim, queue, task, args::text, kwargs::text, attempt, max_attempts, priority,
    inserted_at, started_at, scheduled_at, expires_at, attempted_at, errors::text, meta::text, ready_at, unique_key
FROM taken
ORDER BY priority DESC, ready_at, id
