-- Few parts, each by its index; djqueue_flowcount is almost empty.
CROSS JOIN LATERAL (
    WITH RECURSIVE tree (id, total, completed, cancelled, discarded) AS (
        SELECT flow.id, flow.total, flow.completed, flow.cancelled, flow.discarded
        UNION ALL
        SELECT part.id, part.total, part.completed, part.cancelled, part.discarded
        FROM tree
        JOIN djqueue_flow AS part ON part.whole_id = tree.id
    )
    SELECT sum(total)::int AS total, sum(completed)::int AS completed, sum(cancelled)::int AS cancelled, sum(discarded)::int AS discarded
    FROM (
        SELECT total, completed, cancelled, discarded FROM tree
        UNION ALL
        SELECT added, completed, cancelled, discarded FROM djqueue_flowcount WHERE flow_id IN (SELECT id FROM tree)
    ) AS each
) AS sums
