-- Find what a retry of a finished job, or of what failed in a flow and its parts, brings back. Params: id bigint.
-- Returns: one row: jobs bigint[], flows bigint[] (locked, in the order of their ids), has_waiting (an end or a dependency of one of these
-- has yet to take effect), is_held (another flow holds the unique key of one of the flows).
WITH RECURSIVE tree (id, first_id, last_id) AS (
    SELECT id, first_id, last_id FROM djqueue_flow WHERE id = %(id)s::bigint
    UNION ALL
    SELECT part.id, part.first_id, part.last_id FROM tree JOIN djqueue_flow AS part ON part.whole_id = tree.id
),
found (id) AS (
    SELECT id FROM djqueue_finishedjob WHERE id = %(id)s::bigint
    UNION
    SELECT job.id
    FROM tree
    CROSS JOIN LATERAL (
        SELECT id
        FROM djqueue_finishedjob
        WHERE
            id BETWEEN tree.first_id AND tree.last_id AND flow_id = tree.id AND state <> 'completed'
            AND (errors -> -1 ->> 'stopped_by') IS NULL
    ) AS job
    UNION
    SELECT next.id
    FROM found
    CROSS JOIN LATERAL (
        SELECT flow_id AS id FROM djqueue_finishedjob WHERE id = found.id AND flow_id IS NOT NULL
        UNION ALL
        SELECT whole_id FROM djqueue_flow WHERE id = found.id AND whole_id IS NOT NULL
        UNION ALL
        SELECT job.id
        FROM djqueue_dependency AS dependency
        CROSS JOIN LATERAL (
            SELECT id
            FROM djqueue_finishedjob
            WHERE id = dependency.downstream_id AND state = 'cancelled' AND (errors -> -1 ->> 'stopped_by') IS NOT NULL OFFSET 0
        ) AS job
        WHERE dependency.upstream_id = found.id
    ) AS next
),
flow AS MATERIALIZED (
    SELECT id FROM djqueue_flow WHERE id = ANY (ARRAY(SELECT id FROM found)) ORDER BY id FOR NO KEY UPDATE
)
SELECT
    ARRAY(SELECT id FROM djqueue_finishedjob WHERE id = ANY (ARRAY(SELECT id FROM found)) ORDER BY id) AS jobs,
    ARRAY(SELECT id FROM flow) AS flows,
    EXISTS (
        SELECT 1
        FROM djqueue_flowevent AS event
        WHERE
            (event.kind = 'ended' AND event.subject_id IN (SELECT id FROM found))
            OR (
                event.kind = 'link'
                AND EXISTS (SELECT 1 FROM jsonb_array_elements(event.detail) AS pair WHERE (pair ->> 0)::bigint IN (SELECT id FROM found))
            )
    ) AS has_waiting,
    EXISTS (
        SELECT 1
        FROM flow
        JOIN djqueue_flow AS reopened ON reopened.id = flow.id
        JOIN djqueue_flow AS holder ON holder.unique_key = reopened.unique_key AND holder.finished_at IS NULL AND holder.id <> reopened.id
    ) AS is_held
