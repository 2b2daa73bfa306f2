-- Report when each worker last beat, by the database's clock.
-- Params: none. Returns: name, queues text[], silent_seconds, is_dead.
SELECT
    name,
    ARRAY(SELECT jsonb_object_keys(queues)) AS queues,
    extract(epoch FROM clock_timestamp() - LEAST(GREATEST(beat_at, 'epoch'), '9999-01-01'))::float8 AS silent_seconds,
    died_at IS NOT NULL AS is_dead
FROM djqueue_worker
ORDER BY name
