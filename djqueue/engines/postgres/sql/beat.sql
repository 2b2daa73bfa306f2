-- Raise the beat of living workers and read the beats of all workers.
-- Params: workers uuid[] (the living ones), draining uuid[] (those of them that only finish the jobs they have).
-- Returns: id, beat, is_dead of all known workers; each beat is the one before this statement.
-- A counter, not a time: the observer compares it with the value it saw before, by its own monotonic clock.
-- A worker that was declared dead while this statement waited for its row looks alive in the snapshot; the refused beat shows that
-- it is dead.
-- Locked in the order of their ids, as in bury.sql, so that the two cannot deadlock.
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
