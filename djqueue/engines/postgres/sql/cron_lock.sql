-- Lock an entry for one of its nominal times, unless it was changed since it was read.
-- Params: id bigint, revision bigint, expected and last timestamptz (its next_at and last_nominal_at, as they
-- were read), nominal timestamptz.
-- Returns: overlapping (the jobs of it that are still live), is_done (whether this time was handled before); no row: stale.
-- The row lock decides: of two schedulers the second skips the row, or sees that next_at has changed. The unique constraint of
-- the ticks is the second safeguard, and last_nominal_at replaces it for ticks that were pruned.
-- SKIP LOCKED: an application may hold the row for as long as its transaction lasts, and only this entry may be delayed by that.
-- NO KEY: a tick of a manual run (cron_note.sql) holds the row by its foreign key, and must not delay the entry.
-- Only the last hundred jobs of the entry are checked: an older job that is still live is stuck and does not count as an overlap.
SELECT
    ARRAY(
        SELECT job.id
        FROM (
            SELECT tick.job_id
            FROM djqueue_crontick AS tick
            WHERE tick.entry_id = entry.id
            ORDER BY tick.id DESC
            LIMIT 100
        ) AS recent
        JOIN djqueue_job AS job ON job.id = recent.job_id
    ) AS overlapping,
    EXISTS (
        SELECT FROM djqueue_crontick AS tick WHERE tick.entry_id = entry.id AND tick.nominal_at = %(nominal)s::timestamptz
    ) AS is_done
FROM djqueue_cronentry AS entry
WHERE
    entry.id = %(id)s
    AND entry.revision = %(revision)s
    AND entry.next_at IS NOT DISTINCT FROM %(expected)s::timestamptz
    AND entry.last_nominal_at IS NOT DISTINCT FROM %(last)s::timestamptz
    AND (entry.last_nominal_at IS NULL OR entry.last_nominal_at < %(nominal)s::timestamptz)
    AND entry.paused_at IS NULL AND entry.disabled_at IS NULL AND entry.finished_at IS NULL
FOR NO KEY UPDATE OF entry SKIP LOCKED
