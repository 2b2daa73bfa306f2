-- Claim up to %(limit)s available jobs of one queue for a worker, counting the attempt and raising the claim.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock).
-- Returns: what an execution needs, in run order. Nothing when the worker is not registered or is dead, or the queue is paused.
-- The CTE with FOR UPDATE is a fence: as a sub-select in IN (...) the planner may run it again per outer row and
-- lock, and so claim, more rows than the limit.
WITH locked AS MATERIALIZED (
    SELECT ctid
    FROM djqueue_job
    WHERE
        -- include: claimable
),
-- include: claim
