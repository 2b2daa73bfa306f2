-- Give up the marks of these queues (mark.sql), and offer them to whoever else sleeps there.
-- Params: queues text[]. Returns: how many were ours.
-- While one sleeper has the mark the others go without, and are woken all the same. If it goes silently, because its worker is
-- busy, they would not hear of the next job before their poll. So they are woken once, and one of them marks the queue.
-- The lock is gone when the statement has run, and the notification is sent with its commit: who hears it finds the mark free.
-- synchronous_commit: see wake.sql.
WITH setting AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
),
freed AS MATERIALIZED (
    SELECT queue, pg_advisory_unlock(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS was_ours
    FROM setting, unnest(%(queues)s::text[]) AS queue
)
SELECT count(pg_notify('djqueue:' || md5(current_schema()), queue)) FROM freed WHERE was_ours
