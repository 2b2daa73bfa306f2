WITH locked AS MATERIALIZED (
    SELECT id FROM djqueue_worker WHERE id = ANY(%(workers)s::uuid[]) AND died_at IS NULL ORDER BY id FOR NO KEY UPDATE
),
beaten AS (
    UPDATE djqueue_worker AS worker
    SET beat = beat + 1, beat_at = clock_timestamp(), is_draining = worker.id = ANY(%(draining)s::uuid[])
    FROM locked
    WHERE worker.id = locked.id
    RETURNING worker.id
)
SELECT
    worker.id, worker.beat,
    worker.died_at IS NOT NULL OR (worker.id = ANY(%(workers)s::uuid[]) AND beaten.id IS NULL) AS is_dead
FROM djqueue_worker AS worker
LEFT JOIN beaten ON beaten.id = worker.id
