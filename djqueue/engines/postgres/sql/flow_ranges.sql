-- Say where the jobs of a flow and its parts are. Params: id bigint, after bigint (jobs up to this id are not wanted).
-- Returns: id (of the flow or part), first_id, last_id, total; in the order of first_id.
WITH RECURSIVE
-- include: flow_tree
SELECT id, first_id, last_id, total FROM tree WHERE last_id > %(after)s::bigint ORDER BY first_id, id
