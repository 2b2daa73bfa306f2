-- Find the unfinished flow that holds a unique key. Params: key text. Returns: id.
SELECT id FROM djqueue_flow WHERE unique_key = %(key)s AND finished_at IS NULL
