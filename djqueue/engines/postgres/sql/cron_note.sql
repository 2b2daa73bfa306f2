-- Write down that somebody ran an entry by hand, in the transaction that inserts the job.
-- Params: id bigint (of the entry), outcome text, reason text, job bigint, by text, now timestamptz (null: the database's clock).
-- No nominal time: a run by hand takes no place of one that is planned.
INSERT INTO djqueue_crontick (entry_id, at, outcome, reason, job_id, by)
SELECT id, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(outcome)s::text, %(reason)s::text, %(job)s::bigint, %(by)s::text
FROM djqueue_cronentry
WHERE id = %(id)s
