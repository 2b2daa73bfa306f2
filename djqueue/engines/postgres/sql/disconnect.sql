-- End the connections on which dead workers fetched, so that none of their claims commits after their jobs were rescued.
-- Params: names text[] (their application_name). Returns: count.
-- Only connections of our own role: those of other roles cannot be terminated, and are not djqueue's.
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) AS count
FROM pg_stat_activity
WHERE
    datname = current_database() AND usename = current_user AND application_name = ANY(%(names)s::text[])
    AND pid <> pg_backend_pid()
