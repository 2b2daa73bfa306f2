-- Leave events that let jobs wait for what is stored already: see flow_link.sql.
-- Params: upstream bigint[], downstream bigint[], rule text[].
INSERT INTO djqueue_flowevent (kind, subject_id, detail)
SELECT 'link', upstream, jsonb_agg(jsonb_build_array(downstream, rule) ORDER BY downstream)
FROM unnest(%(upstream)s::bigint[], %(downstream)s::bigint[], %(rule)s::text[]) AS wish (upstream, downstream, rule)
GROUP BY upstream
