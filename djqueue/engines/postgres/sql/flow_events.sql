-- Take events of one kind, oldest first, to let them take effect in this transaction.
-- Params: kind text, limit int, skipped bigint[] (ids to leave). Returns: id, subject_id, state, detail (text).
-- synchronous_commit off: an event that a crash brings back takes effect again, and so does what it did.
-- SKIP LOCKED: several processes share the work. Ends are taken in large numbers; dependencies and control requests one by one, because
-- they wait for rows that others hold, and may hold nothing then that others wait for.
WITH taken AS MATERIALIZED (
    SELECT id
    FROM djqueue_flowevent
    WHERE kind = %(kind)s::text AND id <> ALL(%(skipped)s::bigint[])
    ORDER BY id
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM djqueue_flowevent WHERE id = ANY (ARRAY(SELECT id FROM taken))
    RETURNING id, subject_id, state, detail::text
)
SELECT id, subject_id, state, detail
FROM gone
WHERE set_config('synchronous_commit', 'off', true) = 'off'
ORDER BY id
