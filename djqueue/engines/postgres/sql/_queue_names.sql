-- The queues that have available or executing jobs, in order, and a null at the end. A loose index scan: one descent of the index
-- djqueue_job_fetch per queue. DISTINCT would read a million entries to find three names.
name AS (
    (SELECT queue FROM djqueue_job WHERE ready_at IS NOT NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT job.queue FROM djqueue_job AS job WHERE job.ready_at IS NOT NULL AND job.queue > name.queue ORDER BY job.queue LIMIT 1)
    FROM name
    WHERE name.queue IS NOT NULL
)
