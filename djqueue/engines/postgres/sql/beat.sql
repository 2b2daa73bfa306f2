-- Raise the beat of living workers and look at everybody's.
-- Params: workers uuid[] (those that live), draining uuid[] (those of them that finish what they have).
-- Returns: id, beat, is_dead of all known workers; the beats are those before this one.
-- A counter, not a time: whoever watches compares it with what it saw before, by its own monotonic clock.
-- A worker that was buried while this waited for its row looks alive in the snapshot; that its beat was refused tells the truth.
-- Locked in the order of their ids, as in bury.sql, so that the two cannot wait for each other.
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
