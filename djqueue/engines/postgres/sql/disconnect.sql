-- End the connections on which dead workers fetched, so that no claim of theirs commits after their jobs were rescued.
-- Params: names text[] (their application_name). Returns: count.
-- Only those of our own role: others may not be ended, and are none of ours.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) AS count
FROM pg_stat_activity
WHERE
    datname = current_database() AND usename = current_user AND application_name = ANY(%(names)s::text[])
    AND pid <> pg_backend_pid()
