-- The time of the insert, and what the times of one job amount to.
-- clock_timestamp(), not now(): in a long transaction now() is old and the job would jump the queue.
SELECT
    at,
    COALESCE(
        %(scheduled_at)s::timestamptz, CASE WHEN %(delay)s::interval > interval '0' THEN at + %(delay)s::interval END
    ) AS due_at,
    COALESCE(%(expires_at)s::timestamptz, at + %(max_age)s::interval) AS ends_at
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
