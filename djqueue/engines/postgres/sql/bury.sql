-- Mark workers as dead for ever. Their row stays until a later rescue finds nothing of theirs. Params: workers uuid[].
-- Locked in the order of their ids, as in beat.sql.
WITH locked AS MATERIALIZED (
    SELECT id FROM djqueue_worker WHERE id = ANY(%(workers)s::uuid[]) AND died_at IS NULL ORDER BY id FOR NO KEY UPDATE
)
UPDATE djqueue_worker AS worker
SET died_at = clock_timestamp()
FROM locked
WHERE worker.id = locked.id
