-- Read the finished jobs of the highest ids, highest first.
-- Params: before bigint (ids below it), limit int, and those of find_finished.sql. Returns: all columns.
SELECT
    id, state, queue, task, args::text, kwargs::text, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    scheduled_at, ready_at, expires_at, started_at, finished_at, errors::text, result::text, meta::text, unique_key, cancel_request::text
FROM djqueue_finishedjob
WHERE
    id < %(before)s::bigint
    AND (%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
    AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
    AND (%(task)s::text IS NULL OR task = %(task)s::text)
    AND (%(task_prefix)s::text IS NULL OR starts_with(task, %(task_prefix)s::text))
    AND (%(task_part)s::text IS NULL OR strpos(lower(task), lower(%(task_part)s::text)) > 0)
    AND (%(worker)s::uuid IS NULL OR attempted_by = %(worker)s::uuid)
    AND (
        %(older_than)s::interval IS NULL
        OR finished_at <= COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
    )
    AND (
        %(newer_than)s::interval IS NULL
        OR finished_at > COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(newer_than)s::interval
    )
ORDER BY id DESC
LIMIT %(limit)s
