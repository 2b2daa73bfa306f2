-- Ask for what failed in a flow and its parts to be retried. Params: id bigint. Returns: one row: count of the jobs that did not complete.
-- An event: it takes effect after the caller's commit (flow_revive.sql).
WITH RECURSIVE tree (id, first_id, last_id) AS (
    SELECT id, first_id, last_id FROM djqueue_flow WHERE id = %(id)s::bigint
    UNION ALL
    SELECT part.id, part.first_id, part.last_id FROM tree JOIN djqueue_flow AS part ON part.whole_id = tree.id
),
bad AS MATERIALIZED (
    SELECT count(*)::int AS count
    FROM tree
    JOIN djqueue_finishedjob AS job ON job.id BETWEEN tree.first_id AND tree.last_id AND job.flow_id = tree.id
    WHERE job.state <> 'completed'
),
asked AS (
    INSERT INTO djqueue_flowevent (kind, subject_id) SELECT 'retry', %(id)s::bigint FROM bad WHERE count > 0
)
SELECT count FROM bad
