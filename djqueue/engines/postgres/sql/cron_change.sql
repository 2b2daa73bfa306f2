-- Change an entry, unless it was changed since it was read.
-- Params: id bigint, revision bigint, one per column of the definition, code jsonb, is_paused bool, pause_reason text,
-- is_disabled bool, by text, now timestamptz (null: the database's clock).
-- Returns: the new revision; no row if another change came first.
-- An entry with a changed rule, or one that is resumed or enabled, is planned again from now: the time planned by the old rule is
-- dropped, and times that passed meanwhile do not count as missed. Other changes keep the next time.
UPDATE djqueue_cronentry AS entry
SET
    task = %(task)s, args = %(args)s::jsonb, kwargs = %(kwargs)s::jsonb, queue = %(queue)s, priority = %(priority)s::smallint,
    expression = %(expression)s, timezone = %(timezone)s, misfire = %(misfire)s, misfire_window_seconds = %(misfire_window_seconds)s,
    overlap = %(overlap)s, jitter_seconds = %(jitter_seconds)s, start_at = %(start_at)s::timestamptz, end_at = %(end_at)s::timestamptz,
    max_runs = %(max_runs)s::int, code = %(code)s::jsonb,
    paused_at = CASE WHEN %(is_paused)s::bool THEN COALESCE(entry.paused_at, clock.at) END,
    paused_by = CASE WHEN NOT %(is_paused)s::bool THEN '' WHEN entry.paused_at IS NULL THEN %(by)s::text ELSE entry.paused_by END,
    pause_reason = CASE WHEN %(is_paused)s::bool THEN %(pause_reason)s::text ELSE '' END,
    disabled_at = CASE WHEN %(is_disabled)s::bool THEN COALESCE(entry.disabled_at, clock.at) END,
    finished_at = CASE WHEN is_replanned THEN NULL ELSE entry.finished_at END,
    planned_from = CASE WHEN is_replanned THEN clock.at ELSE entry.planned_from END,
    next_at = CASE WHEN is_replanned THEN NULL ELSE entry.next_at END,
    changed_at = clock.at, changed_by = %(by)s::text,
    revision = entry.revision + 1
FROM
    (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock,
    LATERAL (
        SELECT
            id,
            (expression, timezone) <> (%(expression)s::text, %(timezone)s::text)
            OR (start_at, end_at, max_runs) IS DISTINCT FROM (%(start_at)s::timestamptz, %(end_at)s::timestamptz, %(max_runs)s::int)
            OR (paused_at IS NOT NULL AND NOT %(is_paused)s::bool)
            OR (disabled_at IS NOT NULL AND NOT %(is_disabled)s::bool) AS is_replanned
        FROM djqueue_cronentry
        WHERE id = %(id)s
    ) AS before
WHERE entry.id = before.id AND entry.revision = %(revision)s
RETURNING entry.revision
