-- Count the finished jobs that a filter matches, up to a limit, and name the newest of all: a batch that stops there comes to an end
-- although jobs are enqueued meanwhile.
-- Params: those of _filter.sql, limit int. Returns: one row: count, last (0: there are none).
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM djqueue_finishedjob
            WHERE
                -- include: filter age=finished_at
            LIMIT %(limit)s
        ) AS found
    ) AS count,
    (SELECT COALESCE(max(id), 0) FROM djqueue_finishedjob) AS last
