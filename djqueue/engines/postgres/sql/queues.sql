-- List the queues with rules set by operators.
-- Params: none. Returns: name, paused_at, paused_by, pause_reason.
SELECT name, paused_at, paused_by, pause_reason FROM djqueue_queue ORDER BY name
