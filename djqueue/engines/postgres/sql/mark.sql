-- Mark queues on which this worker is about to sleep. Params: queues text[].
-- Returns: queue, is_marked (by this session, now), is_taken (another sleeper has the mark; one is enough, a NOTIFY wakes all).
-- A session-level lock on the LISTEN connection: it ends with its owner and writes nothing. Never waits: a waiting statement receives
-- no notification and holds a snapshot. A statement that checks for sleepers (wake.sql, insert_one.sql) holds the lock in shared mode
-- until its transaction ends, a sleeper holds it exclusively. So when the exclusive attempt fails, a shared attempt shows which of the
-- two is in the way. If neither column is true it is such a statement; mark_behind.sql waits for its end.
WITH tried AS MATERIALIZED (
    SELECT queue, pg_try_advisory_lock(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS is_marked
    FROM unnest(%(queues)s::text[]) AS queue
)
SELECT
    queue,
    is_marked,
    CASE
        WHEN is_marked THEN false
        WHEN pg_try_advisory_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue))
            THEN NOT pg_advisory_unlock_shared(hashtext('djqueue:' || current_schema()), hashtext(queue))
        ELSE true
    END AS is_taken
FROM tried
