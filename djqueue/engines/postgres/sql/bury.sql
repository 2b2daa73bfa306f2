-- Mark workers as dead for ever, except those that have beaten since they were seen. Their rows stay until a later rescue finds none
-- of their jobs.
-- Params: workers uuid[]; beats bigint[] of the same length: the last beat seen of each (null: any).
-- Returns: the ids of the workers that are spared.
-- The beat is compared when the row is locked: a beat that commits first spares the worker; a later beat is refused.
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
