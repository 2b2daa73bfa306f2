-- Record a manual run of an entry, in the transaction that inserts the job.
-- Params: id bigint (of the entry), outcome text, reason text, job_id bigint, by text, now timestamptz (null: the database's clock).
-- No nominal time: a manual run does not replace a planned one.
INSERT INTO djqueue_crontick (entry_id, at, outcome, reason, job_id, by)
SELECT id, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(outcome)s::text, %(reason)s::text, %(job_id)s::bigint, %(by)s::text
FROM djqueue_cronentry
WHERE id = %(id)s
