-- Remove unique keys that have expired or whose job no longer holds them. Params: keys text[], job_ids bigint[], of the same length.
-- Returns: the keys that were removed. Only while the same job holds the key: another job may have taken it since.
-- Waits for another transaction that removes the row; when that one commits, its job holds the key. Locked in the order of the keys.
WITH over AS MATERIALIZED (
    SELECT held.key
    FROM djqueue_uniquekey AS held
    JOIN unnest(%(keys)s::text[], %(job_ids)s::bigint[]) AS o (key, job_id) ON o.key = held.key AND o.job_id = held.job_id
    ORDER BY held.key
    FOR UPDATE OF held
)
DELETE FROM djqueue_uniquekey AS held USING over WHERE held.key = over.key RETURNING held.key
