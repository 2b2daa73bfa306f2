-- A flow and its parts, to any depth.
tree (id, first_id, last_id, total) AS (
    SELECT id, first_id, last_id, total FROM djqueue_flow WHERE id = %(id)s::bigint
    UNION ALL
    SELECT part.id, part.first_id, part.last_id, part.total
    FROM tree
    JOIN djqueue_flow AS part ON part.whole_id = tree.id
)
