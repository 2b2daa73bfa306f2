-- Read a flow. Params: id bigint. Returns: a row as Flow; no row: there is no such flow.
SELECT
    -- include: flow_row
FROM djqueue_flow AS flow
-- include: flow_sums
WHERE flow.id = %(id)s::bigint
