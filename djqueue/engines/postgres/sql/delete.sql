-- Delete live jobs that wait, without a trace.
-- Params: ids bigint[], only text[] (null: whatever their state). Returns: the ids of those that were deleted.
-- A unique key that the job held beyond its life goes with it.
-- Never a job that executes: its worker would find nothing to record an outcome with. Waits for whoever holds a row; see cancel.sql.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE
        id = ANY(%(ids)s::bigint[]) AND state <> 'executing'
        AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    ORDER BY id
    FOR UPDATE
),
deleted AS (
    DELETE FROM djqueue_job AS job USING locked WHERE job.id = locked.id RETURNING job.id, job.unique_key
),
freed AS (
    DELETE FROM djqueue_uniquekey AS held USING deleted WHERE held.key = deleted.unique_key AND held.job_id = deleted.id
)
SELECT id FROM deleted
