-- Count the live jobs that a filter matches, up to a limit, and name the newest of all: a batch that stops there comes to an end
-- although jobs are enqueued meanwhile.
-- Params: those of _filter.sql, limit int. Returns: one row: count, last (0: there are none).
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM djqueue_job
            WHERE
                -- include: filter age=inserted_at
            LIMIT %(limit)s
        ) AS found
    ) AS count,
    (SELECT COALESCE(max(id), 0) FROM djqueue_job) AS last
