-- The next jobs of some flows in ranges of ids. No index has flow_id: a flow's ids are drawn at once, so its jobs are in a range of the
-- primary key, in which others may be too. In one statement over both tables, as get.sql. LIMIT in each range: the planner does not
-- know that the ranges are in order.
member AS MATERIALIZED (
    SELECT job.*
    FROM unnest(%(first)s::bigint[], %(last)s::bigint[]) AS range (first_id, last_id)
    CROSS JOIN LATERAL (
        SELECT *
        FROM (
            SELECT id, flow_id, state, queue, task, pending, meta, NULL::jsonb AS result, errors FROM djqueue_job
            UNION ALL
            SELECT id, flow_id, state, queue, task, NULL, meta, result, errors FROM djqueue_finishedjob
        ) AS job
        WHERE id BETWEEN range.first_id AND range.last_id AND flow_id = ANY(%(flow_id)s::bigint[])
        ORDER BY id
        LIMIT %(limit)s
    ) AS job
    ORDER BY job.id
    LIMIT %(limit)s
)
