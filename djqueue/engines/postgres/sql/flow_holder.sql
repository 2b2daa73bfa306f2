-- Find the unfinished flow that holds a unique key. Params: key text. Returns: id, inserted_at.
SELECT id, inserted_at FROM djqueue_flow WHERE unique_key = %(key)s AND finished_at IS NULL
