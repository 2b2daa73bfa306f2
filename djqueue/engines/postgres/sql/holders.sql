-- Find the live jobs that hold these unique keys.
-- Params: keys text[]. Returns: unique_key, id, state, inserted_at.
-- LATERAL with OFFSET 0: one index lookup per key, whatever ANALYZE last saw. See _fence.sql.
SELECT job.unique_key, job.id, job.state, job.inserted_at
FROM unnest(%(keys)s::text[]) AS wanted (key)
CROSS JOIN LATERAL (
    SELECT unique_key, id, state, inserted_at FROM djqueue_job WHERE unique_key = wanted.key OFFSET 0
) AS job
