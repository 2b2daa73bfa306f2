-- Read the results of the next jobs of a flow. Params: as those of flow_jobs.sql. Returns: id, state, result (text); in the order of ids.
WITH
-- include: flow_members
SELECT id, state, CASE WHEN state = 'completed' THEN result::text END AS result FROM member ORDER BY id
