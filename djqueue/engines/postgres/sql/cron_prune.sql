-- Delete old ticks.
-- Params: age float (seconds), limit int, now timestamptz (null: the database's clock). Returns: one row: the number of deleted ticks.
-- They are not needed to run a time only once: last_nominal_at stays on the entry.
WITH old AS MATERIALIZED (
    SELECT id
    FROM djqueue_crontick
    WHERE at < COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(age)s * interval '1 second'
    ORDER BY at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM djqueue_crontick AS tick USING old WHERE tick.id = old.id RETURNING tick.id
)
SELECT count(*) FROM gone
