-- Cancel jobs whose outcome would let them run again, although their cancellation was requested.
-- Params: as those of ack_requeue.sql, which skips these jobs. Returns: of those that were accepted,
-- id, unique_key, state, is_awaited, counts, as ack_flow.sql as_events.
-- A statement of its own, after that one: a request that was committed while that one waited for the row is in this
-- one's snapshot, and a request is never withdrawn while its job executes. So one of the two takes every outcome that is not stale.
WITH outcome AS MATERIALIZED (
    SELECT o.*, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    FROM unnest(
        %(id)s::bigint[], %(claim)s::bigint[], %(started_ago)s::float8[], %(finished_ago)s::float8[], %(error)s::jsonb[], %(is_spent)s::bool[]
    ) AS o (id, claim, started_ago, finished_ago, error, is_spent)
),
done AS (
    DELETE FROM djqueue_job AS job
    USING outcome AS o
    WHERE
        -- include: fence
        AND job.cancel_request IS NOT NULL
    RETURNING
        job.*, o.error AS outcome_error, o.is_spent, o.at,
        o.at - o.started_ago * interval '1 microsecond' AS outcome_started_at,
        o.at - o.finished_ago * interval '1 microsecond' AS outcome_finished_at
),
finished AS (
    -- include: to_history
        'cancelled', CASE WHEN is_spent IS NOT FALSE THEN attempt ELSE attempt - 1 END,
        COALESCE(outcome_started_at, attempted_at), COALESCE(started_at, outcome_started_at), outcome_finished_at,
        errors || COALESCE(jsonb_set(outcome_error, '{at}', to_jsonb(outcome_finished_at), false), '[]') || jsonb_build_object(
            'attempt', CASE WHEN is_spent IS NOT FALSE THEN attempt ELSE attempt - 1 END,
            'at', to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'), 'by', cancel_request -> 'by',
            'exception', 'djqueue.exceptions.Cancel', 'message', COALESCE(cancel_request ->> 'reason', ''), 'traceback', ''
        ),
        NULL, cancel_request
    FROM done
    RETURNING id, unique_key, state, flow_id, is_awaited
),
-- include: ends ended=finished as_events=true
SELECT id, unique_key, state, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM finished
