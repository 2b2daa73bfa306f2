-- Say where the jobs of a flow and its parts are. Params: id bigint, after bigint (jobs up to this id are not wanted).
-- Returns: id (of the flow or part), first_id, last_id, total; in the order of first_id.
WITH RECURSIVE tree (id, first_id, last_id, total) AS (
    SELECT id, first_id, last_id, total FROM djqueue_flow WHERE id = %(id)s::bigint
    UNION ALL
    SELECT part.id, part.first_id, part.last_id, part.total
    FROM tree
    JOIN djqueue_flow AS part ON part.whole_id = tree.id
)
SELECT id, first_id, last_id, total FROM tree WHERE last_id > %(after)s::bigint ORDER BY first_id, id
