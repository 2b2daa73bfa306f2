-- Take jobs back from dead workers.
-- Params: workers uuid[]; ran_id and ran_claim bigint[] of the same length: what really ran (null: not known, all of it);
-- reason text, limit int, now timestamptz (null: the database's clock).
-- Returns: one row: requeued, discarded, queues (those that got jobs).
-- What ran spends its attempt and keeps an error that says so; with no attempt left it is discarded, so that a job
-- that kills its worker comes to an end. What was only claimed goes back as if nothing had happened. The claim is
-- not lowered, so a late ack of the dead worker is stale.
-- SKIP LOCKED: a row that is being acked at this moment is not lost; the next run looks again.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
lost AS MATERIALIZED (
    SELECT
        job.id, job.attempt >= job.max_attempts AS is_exhausted, job.attempt, job.attempted_by,
        %(ran_id)s::bigint[] IS NULL
        OR EXISTS (
            SELECT 1 FROM unnest(%(ran_id)s::bigint[], %(ran_claim)s::bigint[]) AS ran (id, claim)
            WHERE ran.id = job.id AND ran.claim = job.claim
        ) AS has_run
    FROM djqueue_job AS job
    WHERE job.attempted_by = ANY(%(workers)s::uuid[]) AND job.state = 'executing'
    ORDER BY job.id
    LIMIT %(limit)s
    FOR UPDATE OF job SKIP LOCKED
),
error AS MATERIALIZED (
    SELECT
        lost.id,
        jsonb_build_object(
            'attempt', lost.attempt, 'at', to_char((SELECT at FROM clock) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'),
            'worker', lost.attempted_by, 'exception', 'djqueue.exceptions.WorkerLost', 'message', %(reason)s::text, 'traceback', ''
        ) AS entry
    FROM lost WHERE lost.has_run
),
requeued AS (
    UPDATE djqueue_job AS job
    SET
        state = 'available',
        attempt = CASE WHEN lost.has_run THEN job.attempt ELSE job.attempt - 1 END,
        errors = CASE WHEN lost.has_run THEN job.errors || error.entry ELSE job.errors END
    FROM lost LEFT JOIN error ON error.id = lost.id
    WHERE job.id = lost.id AND NOT (lost.has_run AND lost.is_exhausted)
    RETURNING job.queue
),
removed AS (
    DELETE FROM djqueue_job AS job
    USING lost JOIN error ON error.id = lost.id
    WHERE job.id = lost.id AND lost.is_exhausted
    RETURNING job.*, error.entry
),
discarded AS (
    INSERT INTO djqueue_finishedjob (
        id, state, queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
        ready_at, scheduled_at, expires_at, started_at, finished_at, errors, result, meta, unique_key, cancel_request
    )
    SELECT
        id, 'discarded', queue, task, args, kwargs, priority, attempt, max_attempts, claim, attempted_by, attempted_at, inserted_at,
        ready_at, scheduled_at, expires_at, started_at, (SELECT at FROM clock), errors || entry, result, meta, unique_key, cancel_request
    FROM removed
    RETURNING id
)
SELECT
    (SELECT count(*) FROM requeued) AS requeued,
    (SELECT count(*) FROM discarded) AS discarded,
    (SELECT COALESCE(array_agg(DISTINCT queue), '{}') FROM requeued) AS queues
