-- List the jobs that stage.sql would take.
-- Params: limit int; skip bigint[]; now timestamptz (null: the database's clock). Returns: id.
-- Used only when one of them could not be staged: then they are staged in smaller and smaller parts.
SELECT id
FROM djqueue_job
WHERE
    ready_at IS NULL AND scheduled_at <= COALESCE(%(now)s::timestamptz, clock_timestamp()) AND state <> 'suspended'
    AND id <> ALL(%(skip)s::bigint[])
ORDER BY scheduled_at, id
LIMIT %(limit)s
