-- Find workers that have claimed jobs but have no row.
-- Params: none. Returns: their ids.
-- Such a worker's row was removed while one of its claims was still about to commit. Scans the live table:
-- run at each new term and once a minute, not on the hot path.
SELECT DISTINCT job.attempted_by
FROM djqueue_job AS job
WHERE job.state = 'executing' AND NOT EXISTS (SELECT 1 FROM djqueue_worker AS worker WHERE worker.id = job.attempted_by)
