-- Move finished jobs back to the live table, and reopen their flows.
-- Params: jobs bigint[], flows bigint[] (locked by flow_revivable.sql in the same transaction), now timestamptz (null: the database's clock).
-- Returns: id, queue, state.
-- A job that had begun is available. One that had not waits for each of its dependencies, as if these had been stored before it: an event
-- for each lets it go on waiting, releases it or stops it again (flow_link.sql).
-- Dependents that still wait, and for which these ends have counted, wait for them again.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
finished AS MATERIALIZED (
    SELECT job.*, CASE WHEN job.pending IS NOT NULL THEN (
        SELECT NULLIF(count(*), 0)::int FROM djqueue_dependency WHERE downstream_id = job.id
    ) END AS needs
    FROM djqueue_finishedjob AS job
    WHERE id = ANY(%(jobs)s::bigint[])
    ORDER BY id
    FOR UPDATE
),
inserted AS (
    INSERT INTO djqueue_job (
        id, queue, task, args, kwargs, priority, claim, attempted_by, inserted_at, meta, flow_id, is_awaited, limit_key, tags, fingerprint,
        attempt, attempted_at, started_at, errors, pending, state, max_attempts, ready_at
    )
    SELECT
        id, queue, task, args, kwargs, priority, claim, attempted_by, inserted_at, meta, flow_id, is_awaited, limit_key, tags, fingerprint,
        attempt, attempted_at, started_at, errors, needs, CASE WHEN needs > 0 THEN 'suspended' ELSE 'available' END,
        GREATEST(max_attempts, attempt + 1), CASE WHEN needs > 0 THEN NULL ELSE (SELECT at FROM clock) END
    FROM finished
    RETURNING id, queue, state
),
moved AS (
    DELETE FROM djqueue_finishedjob AS job USING inserted WHERE job.id = inserted.id
),
linked AS (
    INSERT INTO djqueue_flowevent (kind, subject_id, detail)
    SELECT 'link', dependency.upstream_id, jsonb_agg(jsonb_build_array(finished.id, dependency.rule) ORDER BY finished.id)
    FROM finished
    JOIN djqueue_dependency AS dependency ON dependency.downstream_id = finished.id
    WHERE finished.needs > 0
    GROUP BY dependency.upstream_id
),
flow AS MATERIALIZED (
    SELECT
        id, finished_at, failed_at,
        COALESCE(ended.completed, 0) AS completed, COALESCE(ended.cancelled, 0) AS cancelled, COALESCE(ended.discarded, 0) AS discarded
    FROM djqueue_flow
    LEFT JOIN (
        SELECT
            flow_id, count(*) FILTER (WHERE state = 'completed') AS completed, count(*) FILTER (WHERE state = 'cancelled') AS cancelled,
            count(*) FILTER (WHERE state = 'discarded') AS discarded
        FROM finished
        GROUP BY flow_id
    ) AS ended ON ended.flow_id = id
    WHERE id = ANY(%(flows)s::bigint[])
),
below (id, part_id) AS (
    SELECT id, id FROM flow
    UNION ALL
    SELECT below.id, part.id FROM below JOIN djqueue_flow AS part ON part.whole_id = below.part_id
),
failed AS MATERIALIZED (
    SELECT DISTINCT below.id
    FROM below
    JOIN djqueue_flow AS part ON part.id = below.part_id
    LEFT JOIN flow ON flow.id = below.part_id
    WHERE part.cancelled + part.discarded > COALESCE(flow.cancelled + flow.discarded, 0)
),
reopened AS (
    UPDATE djqueue_flow
    SET
        finished_at = NULL,
        failed_at = CASE WHEN flow.id IN (SELECT id FROM failed) THEN djqueue_flow.failed_at END,
        completed = djqueue_flow.completed - flow.completed,
        cancelled = djqueue_flow.cancelled - flow.cancelled,
        discarded = djqueue_flow.discarded - flow.discarded
    FROM flow
    WHERE djqueue_flow.id = flow.id
),
waits AS MATERIALIZED (
    SELECT job.id, more.pending
    FROM (
        SELECT dependency.downstream_id AS id, count(*)::int AS pending
        FROM djqueue_dependency AS dependency
        LEFT JOIN flow ON flow.id = dependency.upstream_id
        WHERE
            dependency.upstream_id IN (SELECT id FROM finished)
            OR (flow.finished_at IS NOT NULL AND dependency.rule <> 'f')
            OR (
                dependency.rule = 'f' AND (flow.finished_at IS NOT NULL OR flow.failed_at IS NOT NULL)
                AND flow.id NOT IN (SELECT id FROM failed)
            )
        GROUP BY dependency.downstream_id
    ) AS more
    JOIN djqueue_job AS job ON job.id = more.id
    WHERE job.state = 'suspended'
    ORDER BY job.id
    FOR UPDATE OF job
),
again AS (
    UPDATE djqueue_job AS job SET pending = job.pending + waits.pending FROM waits WHERE job.id = waits.id
)
SELECT id, queue, state FROM inserted ORDER BY id
