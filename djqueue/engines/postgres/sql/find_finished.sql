-- Find finished jobs, in the order of their ids, a batch at a time.
-- Params: after bigint and last bigint (ids above the one and up to the other), those of _filter.sql, limit int. Returns: id.
SELECT id
FROM djqueue_finishedjob
WHERE
    id > %(after)s::bigint AND id <= %(last)s::bigint AND
    -- include: filter age=finished_at
ORDER BY id
LIMIT %(limit)s
