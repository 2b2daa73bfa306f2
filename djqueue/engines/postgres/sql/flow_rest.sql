-- List some jobs of a flow and of its parts that have not ended and are not asked to end yet, those that are suspended first.
-- Params: id bigint (of the flow), limit int. Returns: id, is_suspended.
-- Found by the range of ids of each flow, because no index has flow_id.
WITH RECURSIVE part (id, first_id, last_id) AS (
    SELECT id, first_id, last_id FROM djqueue_flow WHERE id = %(id)s::bigint
    UNION ALL
    SELECT flow.id, flow.first_id, flow.last_id
    FROM part
    JOIN djqueue_flow AS flow ON flow.whole_id = part.id AND flow.finished_at IS NULL
)
SELECT job.id, job.pending IS NOT NULL AS is_suspended
FROM part
CROSS JOIN LATERAL (
    SELECT id, pending
    FROM djqueue_job
    WHERE id BETWEEN part.first_id AND part.last_id AND flow_id = part.id AND cancel_request IS NULL
    OFFSET 0
) AS job
ORDER BY job.pending IS NULL, job.id
LIMIT %(limit)s
