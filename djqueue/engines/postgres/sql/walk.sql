-- Tell how far a fetch from the start walks: search the first available job of a queue, and count the pages that were read.
-- Params: queue text. Returns: the plan as JSON, with what it did.
-- Pages, not time: what a busy machine takes for a search says nothing about its length.
EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, FORMAT JSON)
SELECT 1
FROM djqueue_job
WHERE queue = %(queue)s AND ready_at IS NOT NULL AND state <> 'executing'
ORDER BY priority DESC, ready_at, id
LIMIT (SELECT 1::bigint)
