-- Whether the queue is not paused: asked once per statement, of a table with at most one row per queue. So a pause needs no message
-- to workers, holds after a restart and works without LISTEN.
NOT EXISTS (SELECT 1 FROM djqueue_queue WHERE name = {queue} AND paused_at IS NOT NULL)
