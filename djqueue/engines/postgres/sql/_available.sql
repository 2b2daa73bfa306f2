-- The available jobs of a queue, found by the index djqueue_job_fetch. "state <> 'executing'" means "state = 'available'" for a job
-- with ready_at, but the planner, which has no statistics of state, expects 0.5 % of the rows from an equation and 99.5 % from an
-- inequality.
queue = {queue} AND ready_at IS NOT NULL AND state <> 'executing'
