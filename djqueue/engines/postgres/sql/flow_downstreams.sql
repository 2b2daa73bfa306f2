-- Read the jobs that wait, or have waited, for a job or flow. Params: id bigint, limit int.
-- Returns: rows as Neighbour, in the order of ids.
SELECT
    edge.downstream_id, false AS is_flow, COALESCE(job.meta #>> '{flow,name}', '') AS name, edge.rule,
    COALESCE(job.state, 'deleted') AS state, CASE WHEN job.state = 'completed' THEN job.result::text END AS result
FROM (
    SELECT downstream_id, rule::text AS rule
    FROM djqueue_dependency
    WHERE upstream_id = %(id)s::bigint
    ORDER BY downstream_id
    LIMIT %(limit)s
) AS edge
LEFT JOIN LATERAL (
    SELECT state, meta, NULL::jsonb AS result FROM djqueue_job WHERE id = edge.downstream_id
    UNION ALL
    SELECT state, meta, result FROM djqueue_finishedjob WHERE id = edge.downstream_id
) AS job ON true
ORDER BY edge.downstream_id
