-- What an execution needs, in the order of the fields of ClaimedJob.
id, claim, queue, task, args::text, kwargs::text, attempt, max_attempts, priority,
inserted_at, started_at, scheduled_at, expires_at, attempted_at, errors::text, meta::text, ready_at, flow_id, is_awaited
