-- Count finished jobs that a filter finds, up to a limit, and name the newest of all: a batch that stops there comes to an end although
-- jobs are enqueued meanwhile.
-- Params: as in find_finished.sql. Returns: one row: count, last (0: there are none).
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM djqueue_finishedjob
            WHERE
                (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
                AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
                AND (%(task)s::text IS NULL OR task = %(task)s::text)
                AND (
                    %(older_than)s::interval IS NULL
                    OR finished_at <= COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
                )
            LIMIT %(limit)s
        ) AS found
    ) AS count,
    (SELECT COALESCE(max(id), 0) FROM djqueue_finishedjob) AS last
