-- Remove an entry with its history.
-- Params: id bigint. Returns: its name; no row if it does not exist.
WITH history AS (
    DELETE FROM djqueue_crontick WHERE entry_id = %(id)s
)
DELETE FROM djqueue_cronentry WHERE id = %(id)s
RETURNING name
