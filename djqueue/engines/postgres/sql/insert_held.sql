-- Store jobs whose unique keys are held beyond the job's life, and say in input order what became of each.
-- Params: as those of insert.sql, and window interval (how long the key is held from now; null: as long as the job is kept).
-- Returns: id, state, inserted_at, was_duplicate, void_id. See insert.sql for what the two have in common.
-- The key's row is inserted first: it is refused while another row exists, expired or not (unique_key.sql tells them apart; an
-- upsert would lock rows of keys that belong to other jobs until the caller's commit). The job is inserted second, and may be refused
-- too: a live job can hold a key that has no row, after a retry or under another rule. The lookup of such a job only makes that rare.
-- Then the row belongs to a job that does not exist; void_id names it, and unhold.sql removes it.
-- OFFSET 0: one index lookup per key. Otherwise the planner may turn it into a join and read the whole live table.
WITH
-- include: numbered_input
,
held AS (
    INSERT INTO djqueue_uniquekey (key, job_id, expires_at)
    SELECT unique_key, id, at + %(window)s::interval
    FROM input
    WHERE
        unique_key IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM djqueue_job AS live WHERE live.unique_key = input.unique_key OFFSET 0)
    ORDER BY unique_key, place
    ON CONFLICT (key) DO NOTHING
    RETURNING job_id
),
inserted AS (
    -- include: insert_input
    WHERE unique_key IS NULL OR id IN (SELECT job_id FROM held)
    ORDER BY unique_key, place
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, state, inserted_at
)
SELECT
    inserted.id, inserted.state, COALESCE(inserted.inserted_at, input.at) AS inserted_at, inserted.id IS NULL AS was_duplicate,
    CASE WHEN inserted.id IS NULL THEN held.job_id END AS void_id
FROM input
LEFT JOIN held ON held.job_id = input.id
LEFT JOIN inserted ON inserted.id = input.id
ORDER BY input.place
