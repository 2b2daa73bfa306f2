-- Read the crontab.
-- Params: names text[] (null: all entries).
-- Returns: all columns of the entries, by name.
SELECT
    -- include: cron_columns
FROM djqueue_cronentry
WHERE %(names)s::text[] IS NULL OR name = ANY (%(names)s::text[])
ORDER BY name
