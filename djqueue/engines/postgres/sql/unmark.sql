-- Give up the marks of these queues (mark.sql), and offer them to other sleepers.
-- Params: queues text[]. Returns: how many this session held.
-- One sleeper holds the mark, and a notification wakes the others too. If it gave up the mark silently, because its worker is busy,
-- the others would not learn of the next job before their poll. So they are woken once, and one of them marks the queue.
-- The lock is released by the statement and the notification is sent with its commit, so its receivers find the mark free.
-- synchronous_commit: see wake.sql.
WITH setting AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
),
freed AS MATERIALIZED (
    SELECT queue, pg_advisory_unlock(hashtext('djqueue:' || current_schema()), hashtext(queue)) AS was_ours
    FROM setting, unnest(%(queues)s::text[]) AS queue
)
SELECT count(pg_notify('djqueue:' || md5(current_schema()), queue)) FROM freed WHERE was_ours
