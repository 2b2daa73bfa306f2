-- Pause a queue: fetch.sql claims no more of its jobs. Executing jobs go on.
-- Params: queue text, by text, reason text, now timestamptz (null: the database's clock).
-- Returns: one row if the queue was not paused before; the first name and reason are kept.
INSERT INTO djqueue_queue AS queue (name, paused_at, paused_by, pause_reason)
VALUES (%(queue)s, COALESCE(%(now)s::timestamptz, clock_timestamp()), %(by)s, %(reason)s)
ON CONFLICT (name) DO UPDATE
SET paused_at = EXCLUDED.paused_at, paused_by = EXCLUDED.paused_by, pause_reason = EXCLUDED.pause_reason
WHERE queue.paused_at IS NULL
RETURNING name
