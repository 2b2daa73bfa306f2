-- The dependencies on what has ended, and what the end means for each: it is met, it can no longer be met (stops), or neither.
-- No more than limit of them, in order: flow_postpone.sql leaves the others to events.
ended AS MATERIALIZED (
    SELECT *
    FROM unnest(%(id)s::bigint[], %(state)s::text[], %(only_id)s::bigint[], %(after)s::bigint[], %(until)s::bigint[])
        AS e (id, state, only_id, after, until)
),
edge AS MATERIALIZED (
    SELECT
        dependency.upstream_id,
        dependency.downstream_id,
        ended.state,
        CASE ended.state
            WHEN 'completed' THEN dependency.rule <> 'f'
            WHEN 'failing' THEN dependency.rule = 'f'
            WHEN 'failed' THEN dependency.rule IN ('i', 'd')
            ELSE dependency.rule <> 's'
        END AS is_met,
        CASE ended.state WHEN 'completed' THEN dependency.rule = 'f' WHEN 'failing' THEN false ELSE dependency.rule = 's' END AS stops
    FROM ended
    JOIN djqueue_dependency AS dependency ON dependency.upstream_id = ended.id
    WHERE
        dependency.upstream_id = ANY (ARRAY(SELECT id FROM ended))
        AND (ended.only_id IS NULL OR ended.only_id = dependency.downstream_id)
        AND dependency.downstream_id > COALESCE(ended.after, 0)
        AND (ended.until IS NULL OR dependency.downstream_id <= ended.until)
    ORDER BY dependency.upstream_id, dependency.downstream_id
    LIMIT (SELECT %(limit)s::bigint)
)
