-- Ask for an open flow to be closed. Params: id bigint. Returns: its id; no row: there is no such flow that is open.
-- An event, because the row of a flow may not be locked until the caller commits: see flow_closed.sql.
INSERT INTO djqueue_flowevent (kind, subject_id)
SELECT 'close', id FROM djqueue_flow WHERE id = %(id)s::bigint AND is_open AND finished_at IS NULL
RETURNING subject_id
