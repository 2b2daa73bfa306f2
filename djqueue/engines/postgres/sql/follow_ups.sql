-- Find the keys whose follow-up may begin, because no job holds the key itself. Returns: unique_key.
-- Read from the index djqueue_job_follow_up, which contains only suspended follow-ups.
SELECT left(job.unique_key, -5) AS unique_key
FROM djqueue_job AS job
WHERE
    job.unique_key LIKE '%%:next' AND job.state = 'suspended'
    AND NOT EXISTS (SELECT 1 FROM djqueue_job AS holder WHERE holder.unique_key = left(job.unique_key, -5))
ORDER BY job.unique_key
LIMIT %(limit)s
