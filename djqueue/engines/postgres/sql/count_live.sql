-- Count live jobs that a filter finds, up to a limit, and name the newest of all: a batch that stops there comes to an end although
-- jobs are enqueued meanwhile.
-- Params: as in find_live.sql. Returns: one row: count, last (0: there are none).
SELECT
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM djqueue_job
            WHERE
                (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
                AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
                AND (%(task)s::text IS NULL OR task = %(task)s::text)
                AND (%(task_prefix)s::text IS NULL OR starts_with(task, %(task_prefix)s::text))
                AND (%(task_part)s::text IS NULL OR strpos(lower(task), lower(%(task_part)s::text)) > 0)
                AND (%(worker)s::uuid IS NULL OR attempted_by = %(worker)s::uuid)
                AND (
                    %(older_than)s::interval IS NULL
                    OR inserted_at <= COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
                )
                AND (
                    %(newer_than)s::interval IS NULL
                    OR inserted_at > COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(newer_than)s::interval
                )
            LIMIT %(limit)s
        ) AS found
    ) AS count,
    (SELECT COALESCE(max(id), 0) FROM djqueue_job) AS last
