-- Mark the end of a look: somebody is about to sleep on this queue. Params: queue text.
-- Session-level, on the LISTEN connection: it dies with its owner and writes nothing. Fails at lock_timeout when another
-- sleeper holds it (one mark is enough: a NOTIFY wakes all); waits for an asker, who holds it shared for a moment.
-- lock_timeout is short because a waiting statement hears no notification and holds a snapshot.
SELECT pg_advisory_lock(hashtext('djqueue:' || current_schema()), hashtext(%(queue)s::text))
