-- Reserve the ids of jobs that a COPY is about to store, and work out their times.
-- Params: count int, scheduled_at timestamptz, delay interval, expires_at timestamptz, max_age interval (all of them may be null),
-- now timestamptz (null: the database's clock).
-- Returns: first_id, ids (null: they follow the first without a gap, as they do unless another client inserts at this moment),
-- inserted_at, due_at, ends_at, is_due_later.
-- COPY returns nothing and computes nothing, so ids and times are asked for before it. All jobs get the same time, as in insert.sql.
WITH reserved AS MATERIALIZED (
    SELECT nextval((SELECT pg_get_serial_sequence('djqueue_job', 'id'))) AS id FROM generate_series(1, %(count)s::int)
),
times AS MATERIALIZED (
    -- include: job_times
)
SELECT
    min(id) AS first_id,
    CASE WHEN max(id) - min(id) > count(*) - 1 THEN array_agg(id ORDER BY id) END AS ids,
    at AS inserted_at, due_at, ends_at, COALESCE(due_at > at, false) AS is_due_later
FROM reserved CROSS JOIN times
GROUP BY at, due_at, ends_at
