-- Ask for finished jobs of flows, and those that flows waited for, to be retried.
-- Params: ids bigint[], only text[] (null: regardless of their state). Returns: id.
-- Events: they take effect after the caller's commit (flow_revive.sql), because flows are locked before jobs. A job with a unique key,
-- which another may hold by then, is left.
INSERT INTO djqueue_flowevent (kind, subject_id)
SELECT 'retry', id
FROM djqueue_finishedjob
WHERE
    id = ANY(%(ids)s::bigint[]) AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    AND (flow_id IS NOT NULL OR is_awaited OR pending IS NOT NULL) AND unique_key IS NULL
ORDER BY id
RETURNING subject_id
