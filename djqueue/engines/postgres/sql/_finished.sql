-- Move the jobs of an ack to the history, each with its outcome.
-- The time of an error is reckoned as all others are, back from this write, and not by the clock of the worker.
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
