-- Resume a paused queue. Params: queue text. Returns: one row if it was paused.
UPDATE djqueue_queue SET paused_at = NULL, paused_by = '', pause_reason = '' WHERE name = %(queue)s AND paused_at IS NOT NULL RETURNING name
