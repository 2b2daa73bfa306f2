-- List those of these jobs whose cancellation was requested while they execute.
-- Params: ids bigint[] (those that the calling worker executes). Returns: id, claim, by, reason.
-- An array from a sub-select leads the planner to the primary key: see _fence.sql.
SELECT id, claim, COALESCE(cancel_request ->> 'by', '') AS by, COALESCE(cancel_request ->> 'reason', '') AS reason
FROM djqueue_job
WHERE id = ANY (ARRAY(SELECT unnest(%(ids)s::bigint[]))) AND state = 'executing' AND cancel_request IS NOT NULL
