-- Lock the wholes of flows that have finished or failed, and hand the failure on.
-- Params: ids bigint[] (of the parts), failed bigint[] (those of them that have failed), now timestamptz (null: the database's clock).
-- Returns: id (of a whole), is_failing (its first failure), has_events (the same in each row).
WITH part AS MATERIALIZED (
    SELECT id, whole_id FROM djqueue_flow WHERE id = ANY(%(ids)s::bigint[]) AND whole_id IS NOT NULL
),
locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_flow
    WHERE id = ANY (ARRAY(SELECT whole_id FROM part))
    ORDER BY id
    FOR NO KEY UPDATE
),
failing AS (
    UPDATE djqueue_flow AS flow
    SET failed_at = COALESCE(%(now)s::timestamptz, clock_timestamp())
    WHERE
        flow.id = ANY (ARRAY(SELECT id FROM locked)) AND flow.failed_at IS NULL
        AND flow.id IN (SELECT whole_id FROM part WHERE id = ANY(%(failed)s::bigint[]))
    RETURNING flow.id, flow.on_failure, true AS is_failing
),
-- include: cancel_rest failing=failing
SELECT locked.id, COALESCE(failing.is_failing, false) AS is_failing, EXISTS (SELECT 1 FROM cancelling) AS has_events
FROM locked
LEFT JOIN failing ON failing.id = locked.id
