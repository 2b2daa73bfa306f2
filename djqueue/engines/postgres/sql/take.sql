-- Take up to %(limit)s available jobs of one queue out of the live table, for a queue whose jobs run at most once.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock).
-- Returns: as fetch.sql, and unique_key. From here on the job is in no table, until record.sql writes its history: if the worker dies
-- meanwhile the job is lost, and no other worker can run it again.
-- Jobs of flows, and jobs that others wait for, are left: a lost one would keep others waiting for ever.
WITH locked AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        flow_id IS NULL AND is_awaited IS NULL AND
        -- include: claimable
),
taken AS (
    DELETE FROM djqueue_job AS job
    WHERE job.ctid = ANY (ARRAY(SELECT ctid FROM locked)) AND job.state <> 'executing'
    RETURNING
        job.id, job.claim + 1 AS claim, job.queue, job.task, job.args, job.kwargs, job.attempt + 1 AS attempt, job.max_attempts,
        job.priority, job.inserted_at, job.started_at, job.scheduled_at, job.expires_at,
        COALESCE(%(now)s::timestamptz, clock_timestamp()) AS attempted_at, job.errors, job.meta, job.ready_at,
        job.flow_id, job.is_awaited, job.unique_key
)
SELECT
    -- include: claimed_columns
    , unique_key
FROM taken
ORDER BY priority DESC, ready_at, id
