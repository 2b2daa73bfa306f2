-- Take events of these kinds, oldest first, to let them take effect in this transaction.
-- Params: kinds text[], limit int. Returns: id, kind, subject_id, state, detail (text).
-- SKIP LOCKED: several processes share the work. Ends are taken in large numbers; dependencies and control requests one by one, because
-- they wait for rows that others hold, and may hold nothing then that others wait for.
WITH taken AS MATERIALIZED (
    SELECT id
    FROM djqueue_flowevent
    WHERE kind = ANY(%(kinds)s::text[])
    ORDER BY id
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM djqueue_flowevent WHERE id = ANY (ARRAY(SELECT id FROM taken))
    RETURNING id, kind, subject_id, state, detail::text
)
SELECT id, kind, subject_id, state, detail FROM gone ORDER BY id
