-- Measure how far a fetch from the start walks: search the first available job of a queue, and count the pages that were read.
-- Params: queue text. Returns: the plan as JSON, with what it did.
-- Pages, not time: how long a search takes on a busy machine says nothing about its length.
EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, FORMAT JSON)
SELECT 1
FROM djqueue_job
WHERE
    -- include: available queue=%(queue)s
ORDER BY priority DESC, ready_at, id
LIMIT (SELECT 1::bigint)
