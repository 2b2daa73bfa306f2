-- Read what a job waits for or has waited for. Params: id bigint. Returns: rows as Neighbour, in the order of ids.
-- A dependency on what was stored before is an event until the transaction that stored it has committed.
SELECT
    edge.upstream_id, flow.id IS NOT NULL AS is_flow, COALESCE(flow.name, job.meta #>> '{flow,name}', '') AS name, edge.rule,
    COALESCE(
        job.state,
        CASE
            WHEN flow.id IS NULL THEN 'deleted'
            WHEN flow.finished_at IS NULL THEN 'unfinished'
            WHEN flow.failed_at IS NULL THEN 'completed'
            ELSE 'failed'
        END
    ) AS state,
    CASE WHEN job.state = 'completed' THEN job.result::text END AS result
FROM (
    SELECT upstream_id, rule::text AS rule FROM djqueue_dependency WHERE downstream_id = %(id)s::bigint
    UNION
    SELECT (detail ->> 'upstream')::bigint, detail ->> 'rule' FROM djqueue_flowevent WHERE kind = 'link' AND subject_id = %(id)s::bigint
) AS edge
LEFT JOIN LATERAL (
    SELECT state, meta, NULL::jsonb AS result FROM djqueue_job WHERE id = edge.upstream_id
    UNION ALL
    SELECT state, meta, result FROM djqueue_finishedjob WHERE id = edge.upstream_id
) AS job ON true
LEFT JOIN djqueue_flow AS flow ON flow.id = edge.upstream_id
ORDER BY edge.upstream_id
