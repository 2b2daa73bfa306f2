-- Reserve the ids of jobs that a COPY is about to store, and say what their times make of them.
-- Params: count int, scheduled_at timestamptz, delay interval, expires_at timestamptz, max_age interval (all of them may be null),
-- now timestamptz (null: the database's clock).
-- Returns: first_id, ids (null: they follow the first without a gap, as they do unless somebody else inserts at this moment),
-- inserted_at, due_at, ends_at, is_due_later.
-- COPY returns nothing and computes nothing; therefore ids and clock come beforehand. One clock for all of them, as in insert.sql.
WITH reserved AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('djqueue_job', 'id'))) AS id FROM generate_series(1, %(count)s::int)
),
clock AS MATERIALIZED (
    SELECT
        at,
        COALESCE(
            %(scheduled_at)s::timestamptz, CASE WHEN %(delay)s::interval > interval '0' THEN at + %(delay)s::interval END
        ) AS due_at,
        COALESCE(%(expires_at)s::timestamptz, at + %(max_age)s::interval) AS ends_at
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS now
)
SELECT
    min(id) AS first_id,
    CASE WHEN max(id) - min(id) > count(*) - 1 THEN array_agg(id ORDER BY id) END AS ids,
    at AS inserted_at, due_at, ends_at, COALESCE(due_at > at, false) AS is_due_later
FROM reserved CROSS JOIN clock
GROUP BY at, due_at, ends_at
