-- Count live jobs by queue and state.
-- Params: none. Returns: queue, state, count, oldest_seconds (how long the oldest available job has waited).
SELECT
    queue, state, count(*) AS count,
    extract(epoch FROM clock_timestamp() - min(ready_at) FILTER (WHERE state = 'available' AND isfinite(ready_at)))::float8 AS oldest_seconds
FROM djqueue_job
GROUP BY queue, state
ORDER BY queue, state
