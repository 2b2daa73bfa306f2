-- Read the next jobs of some flows. Params: flow_id bigint[]; first, last bigint[] (ranges of ids, which do not overlap), limit int.
-- Returns: id, name, flow_id, state, queue, task, pending, upstreams bigint[], rules text[]; in the order of ids.
WITH
-- include: flow_members
SELECT
    id, COALESCE(meta #>> '{flow,name}', '') AS name, flow_id, state, queue, task, COALESCE(pending, 0) AS pending,
    upstream.ids AS upstreams, upstream.rules
FROM member
CROSS JOIN LATERAL (
    SELECT array_agg(upstream_id ORDER BY upstream_id) AS ids, array_agg(rule::text ORDER BY upstream_id) AS rules
    FROM djqueue_dependency
    WHERE downstream_id = member.id
) AS upstream
ORDER BY id
