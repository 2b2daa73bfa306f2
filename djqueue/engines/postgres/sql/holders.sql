-- Find the live jobs that hold these unique keys.
-- Params: keys text[]. Returns: unique_key, id, state, inserted_at.
SELECT unique_key, id, state, inserted_at
FROM djqueue_job
WHERE unique_key = ANY(%(keys)s::text[])
