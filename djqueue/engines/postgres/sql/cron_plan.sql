-- Store when an entry is next due, unless it was changed since it was read.
-- Params: id bigint, revision bigint, expected timestamptz (its next_at, as it was read), next timestamptz (null: never again, the entry is finished), now
-- timestamptz (null: the database's clock). Returns: nothing.
-- An entry whose row is locked is skipped: that transaction may change its plan, and a scheduler tries again within a second.
WITH free AS MATERIALIZED (
    SELECT id
    FROM djqueue_cronentry
    WHERE id = %(id)s AND revision = %(revision)s AND next_at IS NOT DISTINCT FROM %(expected)s::timestamptz AND finished_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE djqueue_cronentry AS entry
SET
    next_at = %(next)s::timestamptz,
    finished_at = CASE WHEN %(next)s::timestamptz IS NULL THEN COALESCE(%(now)s::timestamptz, clock_timestamp()) END
FROM free
WHERE entry.id = free.id
