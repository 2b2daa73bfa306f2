-- Find when the newest finished job ended that exceeds the number of jobs to keep.
-- Params: state text; queue, task text (null: any); other_queues, other_tasks text[] (those with a rule of their own);
-- count int (how many are kept). Returns: cutoff; no row if there are not too many.
-- Reads the history backwards until it has seen that many jobs, or all of it: run once per pass of the pruner, which then rests for
-- a multiple of the time that the pass took.
SELECT finished_at AS cutoff
FROM djqueue_finishedjob
WHERE
    state = %(state)s
    AND (%(queue)s::text IS NULL OR queue = %(queue)s::text)
    AND (%(task)s::text IS NULL OR task = %(task)s::text)
    AND queue <> ALL(%(other_queues)s::text[]) AND task <> ALL(%(other_tasks)s::text[])
ORDER BY finished_at DESC, id DESC
OFFSET %(count)s - 1 LIMIT 1
