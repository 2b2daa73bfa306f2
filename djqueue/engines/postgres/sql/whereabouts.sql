-- Report the state of jobs, to explain why they were not changed.
-- Params: ids bigint[]. Returns: id, state, held_by (for a finished job: the live one that holds its unique key),
-- is_of_flow (for a finished job: it belongs to a flow, or waited for one, or one waited for it).
-- One statement over both tables, as in get.sql.
SELECT id, state, NULL::bigint AS held_by, false AS is_of_flow
FROM djqueue_job
WHERE id = ANY(%(ids)s::bigint[])
UNION ALL
SELECT finished.id, finished.state, live.id AS held_by, finished.flow_id IS NOT NULL OR finished.is_awaited IS TRUE OR finished.pending IS NOT NULL
FROM djqueue_finishedjob AS finished
LEFT JOIN djqueue_job AS live ON live.unique_key = CASE
    WHEN finished.unique_key LIKE '%%:next' THEN left(finished.unique_key, -5) ELSE finished.unique_key
END
WHERE finished.id = ANY(%(ids)s::bigint[])
