-- Finish jobs: move each from the live table to the history with its outcome.
-- Params: one array per column, all of the same length or empty: id, claim, state (null: completed), started_ago and finished_ago
-- (microseconds back from this write; started_ago null: the function never began), result, error (both may be null), is_spent
-- (null: true); now timestamptz (null: the database's clock).
-- Returns: id and unique_key of those that were accepted. A job that no longer executes under this claim is left alone.
-- The time of an error is reckoned as all others are, back from this write, and not by the clock of the worker.
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
        -- include: fence
    RETURNING
        job.*,
        o.state AS outcome_state, o.result AS outcome_result, o.error AS outcome_error, o.is_spent,
        o.at - o.started_ago * interval '1 microsecond' AS outcome_started_at,
        o.at - o.finished_ago * interval '1 microsecond' AS outcome_finished_at
)
-- include: to_history
    COALESCE(outcome_state, 'completed'), CASE WHEN is_spent IS NOT FALSE THEN attempt ELSE attempt - 1 END,
    COALESCE(outcome_started_at, attempted_at), COALESCE(started_at, outcome_started_at), outcome_finished_at,
    CASE
        WHEN outcome_error IS NULL THEN errors
        ELSE (
            -- include: capped_errors errors=errors
        ) || jsonb_set(outcome_error, '{at}', to_jsonb(outcome_finished_at), false)
    END,
    outcome_result, cancel_request
FROM done
RETURNING id, unique_key
