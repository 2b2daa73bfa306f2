-- Raise the beat of living workers and look at everybody's.
-- Params: workers uuid[] (those that live), draining uuid[] (those of them that finish what they have).
-- Returns: id, beat, is_dead of all known workers, as they were before or after this beat.
-- A counter, not a time: whoever watches compares it with what it saw before, by its own monotonic clock.
WITH beaten AS (
    UPDATE djqueue_worker
    SET beat = beat + 1, beat_at = clock_timestamp(), is_draining = id = ANY(%(draining)s::uuid[])
    WHERE id = ANY(%(workers)s::uuid[]) AND died_at IS NULL
    RETURNING id
)
SELECT worker.id, worker.beat, worker.died_at IS NOT NULL AS is_dead
FROM djqueue_worker AS worker
LEFT JOIN beaten ON beaten.id = worker.id
