-- List the workers that have a row.
-- Params: none. Returns: id, name, hostname, pid, queues (as text), concurrency, silent_seconds, is_draining, is_dead, started_at, died_at.
SELECT
    id, name, hostname, pid, queues::text, concurrency, extract(epoch FROM clock_timestamp() - LEAST(GREATEST(beat_at, 'epoch'), '9999-01-01'))::float8 AS silent_seconds,
    is_draining, died_at IS NOT NULL AS is_dead, started_at, died_at
FROM djqueue_worker
ORDER BY name, id
