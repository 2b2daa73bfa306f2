-- Note in their rows that the functions of these claims have been called.
-- Params: ids and claims bigint[] of the same length. Returns: the ids of those that were noted.
-- SKIP LOCKED: a job that is being cancelled or acknowledged at this moment must not delay the heartbeat.
-- An array from a sub-select leads the planner to the primary key: see _fence.sql.
WITH locked AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        id = ANY (ARRAY(SELECT unnest(%(ids)s::bigint[]))) AND state = 'executing'
        AND (id, claim) IN (SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[]))
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
UPDATE djqueue_job AS job
SET meta = CASE WHEN jsonb_typeof(job.meta) = 'object' THEN job.meta ELSE '{}' END || jsonb_build_object('begun', job.claim)
WHERE job.ctid = ANY (ARRAY(SELECT ctid FROM locked))
RETURNING job.id
