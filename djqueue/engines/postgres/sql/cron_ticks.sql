-- Read the history of an entry, newest first.
-- Params: id bigint (of the entry), limit int.
SELECT nominal_at, at, outcome, reason, job_id, missed_from, by
FROM djqueue_crontick
WHERE entry_id = %(id)s
ORDER BY id DESC
LIMIT %(limit)s
