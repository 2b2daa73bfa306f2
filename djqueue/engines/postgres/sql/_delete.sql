-- Delete locked jobs, and the unique keys that they hold beyond their lives.
deleted AS (
    DELETE FROM {table} AS job USING locked WHERE job.id = locked.id
    RETURNING job.id, job.unique_key, job.flow_id, job.is_awaited, 'deleted' AS state
),
freed AS (
    DELETE FROM djqueue_uniquekey AS held USING deleted WHERE held.key = deleted.unique_key AND held.job_id = deleted.id
)
