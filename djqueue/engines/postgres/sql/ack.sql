-- Finish jobs: move each from the live table to the history with its outcome.
-- Params: one array per column, all of the same length or empty: id, claim, state (null: completed), started_ago and finished_ago
-- (microseconds back from this write; started_ago null: the function never began), result, error (both may be null), is_spent
-- (null: true); now timestamptz (null: the database's clock).
-- Returns: id and unique_key of those that were accepted. A job that is no longer executing under this claim is left alone: it was
-- rescued or handed back, and belongs to somebody else.
-- One statement, so that a reader sees the job in exactly one of the tables.
-- Errors: of a job that fails again and again the first ten and the newest forty stay, and between them how many are left out. The
-- time of an error is reckoned as all others are, back from this write, and not by the clock of the worker.
-- The ids are asked for twice. An array from a sub-select, which the planner takes for ten elements, leads it to the primary key
-- whatever ANALYZE last saw. By the join alone it read the whole live table for 1,000 outcomes: 10 us per job instead of 7 among
-- 50,000 jobs, and growing with them.
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
    id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
    ready_at, scheduled_at, expires_at, started_at, finished_at, errors, result, meta, unique_key, cancel_request
)
SELECT
    id, COALESCE(outcome_state, 'completed'), queue, task, args, kwargs, priority,
    CASE WHEN is_spent IS NOT FALSE THEN attempt ELSE attempt - 1 END, max_attempts, claim,
    attempted_by, COALESCE(outcome_started_at, attempted_at), inserted_at, ready_at, scheduled_at, expires_at,
    COALESCE(started_at, outcome_started_at), outcome_finished_at,
    CASE
        WHEN outcome_error IS NULL THEN errors
        ELSE (CASE
            WHEN jsonb_typeof(errors) <> 'array' OR jsonb_array_length(errors) < 50 THEN errors
            WHEN errors -> 10 ? 'left_out' THEN jsonb_set(errors - 11, '{10,left_out}', to_jsonb((errors #>> '{10,left_out}')::int + 1))
            ELSE jsonb_set(errors, '{10}', '{"left_out": 1}')
        END) || jsonb_set(outcome_error, '{at}', to_jsonb(outcome_finished_at), false)
    END,
    outcome_result, meta, unique_key, cancel_request
FROM done
RETURNING id, unique_key
