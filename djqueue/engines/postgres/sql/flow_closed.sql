-- Close a flow, as an event of flow_close.sql asks. Params: id bigint. Returns: counts (as ack_flow.sql): a flow of which nothing is left
-- finishes when they are added up.
WITH closed AS (
    UPDATE djqueue_flow SET is_open = false WHERE id = %(id)s::bigint AND is_open RETURNING id
),
counted AS (
    INSERT INTO djqueue_flowcount (flow_id) SELECT id FROM closed RETURNING id
)
SELECT array_agg(id) AS counts FROM counted
