-- Leave to events what flow_release.sql has not reached because of its limit.
-- Params: those of flow_release.sql, which it follows in the same transaction. Returns: nothing.
-- An event names the range of dependents that it is about: one that begins to wait while it is pending is either in it, or is dealt with by
-- flow_link_states.sql.
WITH
-- include: ended_edges
,
reached AS MATERIALIZED (
    SELECT upstream_id, downstream_id FROM edge ORDER BY upstream_id DESC, downstream_id DESC LIMIT 1
)
INSERT INTO djqueue_flowevent (kind, subject_id, state, detail)
SELECT
    'ended', ended.id, ended.state,
    jsonb_build_object('after', CASE WHEN ended.id = reached.upstream_id THEN reached.downstream_id ELSE ended.after END, 'until', last.id)
FROM reached
JOIN ended ON ended.id >= reached.upstream_id
CROSS JOIN LATERAL (
    SELECT max(downstream_id) AS id FROM djqueue_dependency WHERE upstream_id = ended.id AND downstream_id <= COALESCE(ended.until, downstream_id)
) AS last
WHERE ended.only_id IS NULL AND last.id > CASE WHEN ended.id = reached.upstream_id THEN reached.downstream_id ELSE COALESCE(ended.after, 0) END
