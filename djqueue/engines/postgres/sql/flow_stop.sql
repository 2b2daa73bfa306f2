-- End the suspended jobs that can never begin because of how others ended, and what waits for them, to any depth.
-- Params: those of flow_release.sql, which it follows in the same transaction.
-- Returns: id of those that were stopped, counts (as ack_flow.sql). They are cancelled, with the reason; stopped_by in their last error
-- tells a retry of the upstream what to revive. What waits for a stopped job under another rule, or was linked to it after this snapshot,
-- is left to an event.
-- The walk goes on through suspended jobs only: what had ended before had its effect then. All of it is known before the first lock,
-- and locked in the order of the ids. OFFSET 0: a look-up by index for each row, however many of them the planner expects.
WITH RECURSIVE
-- include: dated_clock
,
-- include: ended_edges
,
doomed (id, upstream_id, state) AS (
    SELECT edge.downstream_id, edge.upstream_id, edge.state
    FROM edge
    CROSS JOIN LATERAL (SELECT FROM djqueue_job WHERE id = edge.downstream_id AND state = 'suspended' OFFSET 0) AS job
    WHERE edge.stops
    UNION
    SELECT dependency.downstream_id, doomed.id, 'cancelled'
    FROM doomed
    CROSS JOIN LATERAL (SELECT downstream_id FROM djqueue_dependency WHERE upstream_id = doomed.id AND rule = 's' OFFSET 0) AS dependency
    CROSS JOIN LATERAL (SELECT FROM djqueue_job WHERE id = dependency.downstream_id AND state = 'suspended' OFFSET 0) AS job
),
locked AS MATERIALIZED (
    SELECT job.id
    FROM djqueue_job AS job
    WHERE job.id = ANY (ARRAY(SELECT id FROM doomed)) AND job.state = 'suspended'
    ORDER BY job.id
    FOR UPDATE
),
cause AS MATERIALIZED (
    SELECT DISTINCT ON (id) id, upstream_id, state
    FROM doomed
    WHERE id IN (SELECT id FROM locked)
    ORDER BY id, state = 'cancelled', upstream_id
),
removed AS (
    DELETE FROM djqueue_job AS job
    USING cause
    WHERE job.id = cause.id
    RETURNING job.*, cause.upstream_id, cause.state AS cause_state
),
stopped AS (
    -- include: to_history
        'cancelled', attempt, attempted_at, started_at, (SELECT at FROM clock),
        errors || jsonb_build_object(
            'attempt', attempt, 'at', (SELECT text FROM clock), 'exception', 'djqueue.exceptions.DependencyFailed',
            'message', format('Its dependency %%s ended as %%s.', upstream_id, cause_state), 'traceback', '', 'stopped_by', upstream_id
        ),
        result, cancel_request
    FROM removed
    RETURNING id, state, flow_id, is_awaited
),
-- include: ends ended=stopped as_events=true
SELECT id, (SELECT array_agg(id) FROM counted) AS counts FROM stopped
