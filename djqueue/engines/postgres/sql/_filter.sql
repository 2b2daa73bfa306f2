-- What a JobFilter asks for; every parameter may be null: states text[], queue text, task text, task_prefix text, task_part text
-- (a pattern for LIKE), worker uuid (that claimed the job last), older_than and newer_than interval (since {age}), now timestamptz
-- (the database's clock).
(%(states)s::text[] IS NULL OR state = ANY(%(states)s::text[]))
AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
AND (%(task)s::text IS NULL OR task = %(task)s::text)
AND (%(task_prefix)s::text IS NULL OR starts_with(task, %(task_prefix)s::text))
AND (%(task_part)s::text IS NULL OR upper(task) LIKE upper(%(task_part)s::text))
AND (%(worker)s::uuid IS NULL OR attempted_by = %(worker)s::uuid)
AND (
    %(older_than)s::interval IS NULL
    OR {age} <= COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(older_than)s::interval
)
AND (
    %(newer_than)s::interval IS NULL
    OR {age} > COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(newer_than)s::interval
)
