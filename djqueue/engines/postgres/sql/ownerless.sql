-- Find who has claimed jobs and has no worker row.
-- Params: none. Returns: the claimers' ids.
-- Such a job's worker left its row behind while a claim of it was still on its way to commit. Scans the live table:
-- run at each new term and once a minute, not on the hot path.
SELECT DISTINCT job.attempted_by
FROM djqueue_job AS job
WHERE job.state = 'executing' AND NOT EXISTS (SELECT 1 FROM djqueue_worker AS worker WHERE worker.id = job.attempted_by)
