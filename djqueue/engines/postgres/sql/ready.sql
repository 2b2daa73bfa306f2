-- List which of these queues have something to fetch: one statement for a worker that serves many.
-- Params: queues text[]. Returns: queue. Paused queues are left out.
-- One index lookup per queue; _claimable.sql explains the LIMIT. It searches the first job from the start: it is not used where
-- fetches take a shortcut past dead entries (fetch_cursor.py).
SELECT wanted.queue
FROM unnest(%(queues)s::text[]) AS wanted (queue)
CROSS JOIN LATERAL (
    SELECT 1
    FROM djqueue_job
    WHERE
        -- include: available queue=wanted.queue
    ORDER BY priority DESC, ready_at, id
    LIMIT (SELECT 1::bigint)
) AS first
WHERE
    -- include: running queue=wanted.queue
