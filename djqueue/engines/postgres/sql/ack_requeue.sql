-- Put jobs back after an attempt: to be retried, snoozed or handed back.
-- Params: one array per column, all of the same length or empty: id, claim, state (available, scheduled, retryable), started_ago
-- (microseconds back from this write; null: the function never began), delay (seconds until due, for the states that wait),
-- error (may be null), is_spent (false gives the attempt back; null: true), note (an object to merge into meta, may be null);
-- now timestamptz (null: the database's clock).
-- Returns: id, queue, state of the jobs that were accepted. A job whose cancellation was requested is skipped: it must not run
-- again. What is not accepted here is offered to ack_cancelled.sql.
-- A job handed back (available, not spent) keeps its ready_at, and with it its position in the queue. A waiting state without a delay
-- becomes available at once, without the stager.
-- A job that began and was interrupted gets its attempt back three times; from then on an interruption spends one, or a job
-- that always outlasts its worker would start for ever. The last attempt is never spent this way: the worker discards the job.
WITH outcome AS MATERIALIZED (
    SELECT o.*, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    FROM unnest(
        %(id)s::bigint[], %(claim)s::bigint[], %(state)s::text[], %(started_ago)s::float8[], %(delay)s::float8[],
        %(error)s::jsonb[], %(is_spent)s::bool[], %(note)s::jsonb[]
    ) AS o (id, claim, state, started_ago, delay, error, is_spent, note)
)
UPDATE djqueue_job AS job
SET
    state = CASE WHEN o.delay > 0 THEN o.state ELSE 'available' END,
    attempt = CASE
        WHEN o.is_spent IS NOT FALSE THEN job.attempt
        WHEN o.state = 'available' AND o.started_ago IS NOT NULL AND job.attempt < job.max_attempts
            AND COALESCE((job.meta ->> 'interrupted')::int, 0) >= 3 THEN job.attempt
        ELSE job.attempt - 1
    END,
    ready_at = CASE WHEN o.delay > 0 THEN NULL WHEN o.state = 'available' AND o.is_spent IS FALSE THEN job.ready_at ELSE o.at END,
    scheduled_at = CASE WHEN o.delay > 0 THEN o.at + o.delay * interval '1 second' ELSE job.scheduled_at END,
    started_at = COALESCE(job.started_at, o.at - o.started_ago * interval '1 microsecond'),
    errors = CASE
        WHEN o.error IS NULL THEN job.errors
        ELSE (
            -- include: capped_errors errors=job.errors
        ) || jsonb_set(o.error, '{at}', to_jsonb(o.at), false)
    END,
    meta = CASE
        WHEN o.note IS NOT NULL THEN job.meta || o.note
        WHEN o.state = 'scheduled' THEN jsonb_set(job.meta - 'parked', '{snoozed}', to_jsonb(COALESCE((job.meta ->> 'snoozed')::int, 0) + 1))
        WHEN o.state = 'available' AND o.is_spent IS FALSE AND o.started_ago IS NOT NULL
            THEN jsonb_set(job.meta, '{interrupted}', to_jsonb(COALESCE((job.meta ->> 'interrupted')::int, 0) + 1))
        ELSE job.meta
    END
FROM outcome AS o
WHERE
    -- include: fence
    AND job.cancel_request IS NULL
RETURNING job.id, job.queue, job.state
