-- Record the outcome of one nominal time, in the transaction that locked the entry and inserted the job.
-- Params: id bigint (of the entry), nominal timestamptz, next timestamptz (null: this was the last time; @reboot has none either),
-- outcome text, reason text, job bigint, missed_from timestamptz, is_done bool (this time has a tick already),
-- is_endless bool (the entry has no next time and is not finished), now timestamptz (null: the database's clock).
-- Returns: runs.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
tick AS (
    INSERT INTO djqueue_crontick (entry_id, nominal_at, at, outcome, reason, job_id, missed_from, by)
    SELECT
        %(id)s::bigint, %(nominal)s::timestamptz, at, %(outcome)s::text, %(reason)s::text, %(job)s::bigint,
        %(missed_from)s::timestamptz, ''
    FROM clock
    WHERE NOT %(is_done)s
)
UPDATE djqueue_cronentry AS entry
SET
    last_nominal_at = %(nominal)s::timestamptz,
    next_at = CASE WHEN ended.is_last THEN NULL ELSE %(next)s::timestamptz END,
    finished_at = CASE WHEN ended.is_last THEN (SELECT at FROM clock) END,
    last_outcome = concat_ws(': ', %(outcome)s::text, NULLIF(%(reason)s::text, '')),
    runs = ended.runs
FROM (
    SELECT
        id,
        runs + increment AS runs,
        (%(next)s::timestamptz IS NULL AND NOT %(is_endless)s) OR runs + increment >= max_runs IS TRUE AS is_last
    FROM djqueue_cronentry, (SELECT CASE WHEN %(outcome)s::text = 'enqueued' THEN 1 ELSE 0 END AS increment) AS one
    WHERE id = %(id)s::bigint
) AS ended
WHERE entry.id = ended.id
RETURNING entry.runs
