-- A job as stored, in the order of the fields of Job.
id, state, queue, task, args::text, kwargs::text, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
scheduled_at, ready_at, expires_at, started_at, finished_at, errors::text, result::text, meta::text, unique_key, cancel_request::text
