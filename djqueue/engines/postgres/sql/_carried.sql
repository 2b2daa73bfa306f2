-- What a job takes along whenever its row moves from one table to the other.
id, queue, task, args, kwargs, priority, claim, attempted_by, inserted_at, meta,
flow_id, is_awaited, pending, limit_key, tags, fingerprint,
