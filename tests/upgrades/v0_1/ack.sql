WITH outcome AS MATERIALIZED (
    SELECT o.*, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    FROM unnest(
        %(id)s::bigint[], %(claim)s::bigint[], %(state)s::text[], %(started_ago)s::float8[], %(finished_ago)s::float8[],
        %(result)s::jsonb[], %(error)s::jsonb[], %(is_spent)s::bool[]
    ) AS o (id, claim, state, started_ago, finished_ago, result, error, is_spent)
),
done AS (
    DELETE FROM djqueue_job AS job
    USING outcome AS o
    WHERE
        job.id = ANY (ARRAY(SELECT id FROM outcome)) AND job.id = o.id AND job.claim = o.claim AND job.state = 'executing'
    RETURNING
        job.*,
        o.state AS outcome_state, o.result AS outcome_result, o.error AS outcome_error, o.is_spent,
        o.at - o.started_ago * interval '1 microsecond' AS outcome_started_at,
        o.at - o.finished_ago * interval '1 microsecond' AS outcome_finished_at
)
INSERT INTO djqueue_finishedjob (
    id, queue, task, args, kwargs, priority, claim, attempted_by, inserted_at, meta,
    flow_id, is_awaited, pending, limit_key, tags, fingerprint,
    max_attempts, ready_at, scheduled_at, expires_at, unique_key,
    state, attempt, attempted_at, started_at, finished_at, errors, result, cancel_request
)
SELECT
    id, queue, task, args, kwargs, priority, claim, attempted_by, inserted_at, meta,
    flow_id, is_awaited, pending, limit_key, tags, fingerprint,
    max_attempts, ready_at, scheduled_at, expires_at, unique_key,
    COALESCE(outcome_state, 'completed'), CASE WHEN is_spent IS NOT FALSE THEN attempt ELSE attempt - 1 END,
    COALESCE(outcome_started_at, attempted_at), COALESCE(started_at, outcome_started_at), outcome_finished_at,
    CASE
        WHEN outcome_error IS NULL THEN errors
        ELSE (
            CASE
                WHEN jsonb_typeof(errors) <> 'array' OR jsonb_array_length(errors) < 50 THEN errors
                WHEN errors -> 10 ? 'left_out' THEN jsonb_set(errors - 11, '{10,left_out}', to_jsonb((errors #>> '{10,left_out}')::int + 1))
                ELSE jsonb_set(errors, '{10}', '{"left_out": 1}')
            END
        ) || jsonb_set(outcome_error, '{at}', to_jsonb(outcome_finished_at), false)
    END,
    outcome_result, cancel_request
FROM done
RETURNING id, unique_key
