-- Read the entries that are due or not planned yet.
-- Params: now timestamptz (null: the database's clock).
-- Returns: per entry the time of this query, the seconds until the next entry is due (null: there is none), and all columns of the
-- entry. If there is no such entry, one row with nulls in its place.
-- The crontab is a small table that is read whole: an index would cost every tick more than it saves here.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
active AS MATERIALIZED (
    SELECT *
    FROM djqueue_cronentry
    WHERE paused_at IS NULL AND disabled_at IS NULL AND finished_at IS NULL AND expression <> '@reboot'
)
SELECT
    clock.at,
    (
        SELECT extract(epoch FROM LEAST(min(next_at), '9999-01-01') - (SELECT at FROM clock))::float8
        FROM active
        WHERE next_at > (SELECT at FROM clock)
    ) AS next_in,
    -- include: cron_columns
FROM clock
LEFT JOIN active ON active.next_at IS NULL OR active.next_at <= clock.at
ORDER BY active.next_at NULLS FIRST, active.id
