-- Say who holds the unique keys of finished jobs that could not be retried.
-- Params: ids bigint[]. Returns: id (finished), holder (live).
SELECT finished.id, live.id AS holder
FROM djqueue_finishedjob AS finished
JOIN djqueue_job AS live ON live.unique_key = CASE
    WHEN finished.unique_key LIKE '%%:next' THEN left(finished.unique_key, -5) ELSE finished.unique_key
END
WHERE finished.id = ANY(%(ids)s::bigint[])
