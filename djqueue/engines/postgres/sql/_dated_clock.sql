-- The time of this write, also as the text that stands in an error.
clock AS MATERIALIZED (
    SELECT at, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"') AS text
    FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS t
)
