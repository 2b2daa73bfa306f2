-- Mark workers as dead for ever, but those that have beaten since they were seen. Their row stays until a later rescue finds nothing
-- of theirs.
-- Params: workers uuid[]; beats bigint[] of the same length: the beat with which each was seen (null: whatever it is).
-- Returns: the ids of the workers that are spared.
-- The beat is compared when the row is locked: a beat that commits first spares the worker, and one that comes later is refused.
-- Locked in the order of their ids, as in beat.sql.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_worker
    WHERE
        id = ANY(%(workers)s::uuid[]) AND died_at IS NULL
        AND beat = COALESCE(
            (
                SELECT seen.beat FROM unnest(%(workers)s::uuid[], %(beats)s::bigint[]) AS seen (id, beat)
                WHERE seen.id = djqueue_worker.id
            ),
            beat
        )
    ORDER BY id
    FOR NO KEY UPDATE
),
buried AS (
    UPDATE djqueue_worker AS worker
    SET died_at = clock_timestamp()
    FROM locked
    WHERE worker.id = locked.id
    RETURNING worker.id
)
SELECT id FROM djqueue_worker WHERE id = ANY(%(workers)s::uuid[]) AND died_at IS NULL AND id NOT IN (SELECT id FROM buried)
