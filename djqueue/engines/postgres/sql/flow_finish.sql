-- Finish flows of which nothing is left: neither jobs of their own nor unfinished parts.
-- Params: ids bigint[] (locked by this transaction in a statement before: the snapshot must be younger), now timestamptz (null: the
-- database's clock).
-- Returns: id, whole_id (to be locked and looked at next), is_awaited (flow_release.sql has to follow), state (completed, failed).
-- Once in the life of a flow: finished_at is that of the lock. A part that is being added is seen here, because its creator is a job of this
-- flow that has not ended, or the flow is open.
UPDATE djqueue_flow AS flow
SET finished_at = COALESCE(%(now)s::timestamptz, clock_timestamp())
WHERE
    flow.id = ANY(%(ids)s::bigint[]) AND flow.finished_at IS NULL AND NOT flow.is_open
    AND flow.total = flow.completed + flow.cancelled + flow.discarded
    AND NOT EXISTS (SELECT 1 FROM djqueue_flow AS part WHERE part.whole_id = flow.id AND part.finished_at IS NULL)
RETURNING flow.id, flow.whole_id, flow.is_awaited, CASE WHEN flow.failed_at IS NULL THEN 'completed' ELSE 'failed' END AS state
