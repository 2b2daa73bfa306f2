-- Say whether anybody sleeps on this queue, and so has to be woken (wake.sql, which asks again).
-- Params: queue text. After the commit that made a job visible, never before; it may travel in the same message.
SELECT NOT pg_try_advisory_xact_lock_shared(hashtext('djqueue:' || current_schema()), hashtext(%(queue)s)) AS is_asleep
