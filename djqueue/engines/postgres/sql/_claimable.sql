-- The jobs of a queue that a worker may claim, in run order, locked. None when the worker is not registered or is dead, or the queue
-- is paused.
-- A LIMIT that the planner cannot know makes it plan for a tenth of the rows, where a number above its estimate of the queue makes it
-- plan for all of them: it would read and sort all jobs (45 us per job instead of 14 at 100,000 available jobs, and growing).
-- include: available queue=%(queue)s
AND EXISTS (SELECT 1 FROM djqueue_worker WHERE id = %(worker)s AND died_at IS NULL)
AND
-- include: running queue=%(queue)s
ORDER BY priority DESC, ready_at, id
LIMIT (SELECT %(limit)s::bigint)
FOR UPDATE SKIP LOCKED
