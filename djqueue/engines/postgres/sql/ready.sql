-- Say which of these queues have something to fetch: one statement for a worker that serves many.
-- Params: queues text[]. Returns: queue. A paused one is left out.
-- One look into the index per queue; fetch.sql explains the phrases that lead the planner there. A search for the first job from
-- the start: where fetches take a shortcut past dead entries (place.py), this is not asked.
SELECT wanted.queue
FROM unnest(%(queues)s::text[]) AS wanted (queue)
CROSS JOIN LATERAL (
    SELECT 1
    FROM djqueue_job
    WHERE queue = wanted.queue AND ready_at IS NOT NULL AND state <> 'executing'
    ORDER BY priority DESC, ready_at, id
    LIMIT (SELECT 1::bigint)
) AS first
WHERE NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = wanted.queue AND paused_at IS NOT NULL)
