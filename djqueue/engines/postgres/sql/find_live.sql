-- Find live jobs, in the order of their ids, a batch at a time.
-- Params: after bigint and last bigint (ids beyond the one and up to the other), states text[] (null: all), queue text, task text,
-- task_prefix text, task_part text, worker uuid (null: any), older_than interval (enqueued longer ago than that; null: any), newer_than interval (less
-- long ago; null: any), limit int, now timestamptz (null: the database's clock). Returns: id.
SELECT id
FROM djqueue_job
WHERE
    id > %(after)s::bigint AND id <= %(last)s::bigint
    AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
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
ORDER BY id
LIMIT %(limit)s
