-- Ask for a flow to be cancelled, and closed if it is open. Params: id bigint, by text, reason text.
-- Returns: one row: count (jobs of it and its parts that have not ended and are not asked to end yet).
-- Events, because an ack may need the rows: they take effect after the caller's commit (flow_rest.sql, flow_closed.sql).
WITH RECURSIVE tree (id, first_id, last_id, is_open) AS (
    SELECT id, first_id, last_id, is_open FROM djqueue_flow WHERE id = %(id)s::bigint AND finished_at IS NULL
    UNION ALL
    SELECT part.id, part.first_id, part.last_id, part.is_open
    FROM tree
    JOIN djqueue_flow AS part ON part.whole_id = tree.id AND part.finished_at IS NULL
),
asked AS (
    INSERT INTO djqueue_flowevent (kind, subject_id, detail)
    SELECT 'cancel', id, jsonb_build_object('by', %(by)s::text, 'reason', %(reason)s::text) FROM tree WHERE id = %(id)s::bigint
    UNION ALL
    SELECT 'close', id, NULL FROM tree WHERE is_open
)
SELECT COALESCE(sum(job.count), 0)::int AS count
FROM tree
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM djqueue_job
    WHERE id BETWEEN tree.first_id AND tree.last_id AND flow_id = tree.id AND cancel_request IS NULL
) AS job
