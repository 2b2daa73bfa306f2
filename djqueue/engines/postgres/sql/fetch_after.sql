-- Claim up to %(limit)s available jobs of one queue after given keys: fetch.sql with a shortcut past dead entries.
-- Params: queue text, limit int, worker uuid, now timestamptz (null: the database's clock); and where to search, in run
-- order, as arrays of the same length: levels smallint[] (a priority, searched after the key after_at timestamptz[],
-- after_id bigint[]; null: a gap), above and below smallint[] (the gap: priorities between these two, searched whole).
-- Returns: what fetch.sql returns, under the same conditions.
-- Level by level, because "priority = p AND (ready_at, id) > (...)" is an index condition, and one condition over all levels
-- is not. A level that this worker does not know yet lies in a gap; it is searched in its turn. See fetch_cursor.py for what this
-- skips.
-- The join is a loop that stops as soon as it has enough, so nothing is locked that is not claimed.
WITH locked AS MATERIALIZED (
    SELECT found.ctid
    FROM unnest(
        %(levels)s::smallint[], %(above)s::smallint[], %(below)s::smallint[], %(after_at)s::timestamptz[], %(after_id)s::bigint[]
    ) AS range (level, above, below, after_at, after_id)
    CROSS JOIN LATERAL (
        SELECT ctid FROM (
            SELECT ctid
            FROM djqueue_job
            WHERE
                priority = range.level AND (ready_at, id) > (range.after_at, range.after_id) AND
                -- include: claimable
        ) AS level
        UNION ALL
        SELECT ctid FROM (
            SELECT ctid
            FROM djqueue_job
            WHERE
                priority > range.above AND priority < range.below AND
                -- include: claimable
        ) AS gap
    ) AS found
    LIMIT (SELECT %(limit)s::bigint)
),
-- include: claim
