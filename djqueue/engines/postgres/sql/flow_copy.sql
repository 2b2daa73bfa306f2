-- Store jobs of flows whose ids are reserved (reserve.sql), as lines of text; see copy.sql.
COPY djqueue_job (
    id, state, flow_id, is_awaited, pending, args, kwargs, queue, task, priority, max_attempts, inserted_at, ready_at, scheduled_at,
    expires_at, meta
) FROM STDIN WITH (FORMAT text, NULL '')
