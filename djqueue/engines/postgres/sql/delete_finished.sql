-- Delete finished jobs, and with them the unique keys that they still hold.
-- Params: ids bigint[], only text[] (null: whatever their state). Returns: the ids of those that were deleted.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_finishedjob
    WHERE id = ANY(%(ids)s::bigint[]) AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    ORDER BY id
    FOR UPDATE
),
deleted AS (
    DELETE FROM djqueue_finishedjob AS job USING locked WHERE job.id = locked.id RETURNING job.id, job.unique_key
),
freed AS (
    DELETE FROM djqueue_uniquekey AS held USING deleted WHERE held.key = deleted.unique_key AND held.job_id = deleted.id
)
SELECT id FROM deleted
