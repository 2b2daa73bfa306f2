-- Mark the end of a look: somebody is about to sleep on these queues. Params: queues text[].
-- Returns: queue, is_marked (by us, now), is_taken (another sleeper has the mark; one is enough, a NOTIFY wakes all).
-- Session-level, on the LISTEN connection: it dies with its owner and writes nothing. Never waits: a waiting statement hears
-- no notification and holds a snapshot. Whoever asks (wake.sql, insert_one.sql) holds the lock shared until his transaction ends, a
-- sleeper exclusively; so when the exclusive try fails, a shared one tells which of the two is in the way. Neither column true: an
-- asker, whose end mark_behind.sql waits for.
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
