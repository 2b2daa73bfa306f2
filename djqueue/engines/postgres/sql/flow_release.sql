-- Release the jobs that wait for nothing but these, which have ended.
-- Params: id bigint[] (jobs or flows), state text[] (of a job: completed, cancelled, discarded, deleted; of a flow: completed, failed, and
-- failing at its first failure), only_id bigint[] (the one dependent that this is about; null: all), after and until bigint[]
-- (the range of dependents that this is about; null: all); limit int (of dependencies); now timestamptz (null: the database's clock).
-- Returns: one row: queues (those that got jobs), edges (how many dependencies were looked at), is_scheduled (the stager has work), has_stops (flow_stop.sql has to follow).
-- In the transaction that ended them, as a statement after it: its snapshot has every dependency that was committed before the row of
-- the ended job was locked, and flow_link.sql takes care of those that were not.
-- Only short transactions of djqueue lock a suspended job of a flow (control requests for those are events), so an ack waits for no
-- application. Two acks that meet at a dependent wait for each other's commit at most, in the order of the ids. pending is that of the
-- lock and not of the snapshot: an UPDATE that has waited is evaluated again.
-- LATERAL: one look-up by index per dependent. With an array of all ids beside a join, as in _fence.sql, each of 5,000 dependents was
-- compared with each.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
-- include: ended_edges
,
locked AS MATERIALIZED (
    SELECT
        target.id, target.met,
        COALESCE(
            (job.meta #>> '{flow,due_at}')::timestamptz,
            (SELECT at FROM clock) + (job.meta #>> '{flow,delay}')::float8 * interval '1 second'
        ) AS due_at
    FROM (SELECT downstream_id AS id, count(*)::int AS met FROM edge WHERE is_met GROUP BY downstream_id ORDER BY downstream_id) AS target
    CROSS JOIN LATERAL (SELECT meta FROM djqueue_job WHERE id = target.id AND state = 'suspended' FOR UPDATE) AS job
),
released AS (
    UPDATE djqueue_job AS job
    SET
        pending = CASE WHEN job.pending > locked.met THEN job.pending - locked.met END,
        state = CASE WHEN job.pending > locked.met THEN job.state WHEN locked.due_at > clock.at THEN 'scheduled' ELSE 'available' END,
        ready_at = CASE WHEN job.pending > locked.met OR locked.due_at > clock.at THEN NULL ELSE clock.at END,
        scheduled_at = CASE WHEN job.pending > locked.met THEN NULL ELSE locked.due_at END
    FROM locked, clock
    WHERE job.id = locked.id
    RETURNING job.queue, job.state
)
SELECT
    (SELECT COALESCE(array_agg(DISTINCT queue), '{}') FROM released WHERE state = 'available') AS queues,
    (SELECT count(*) FROM edge) AS edges,
    EXISTS (SELECT 1 FROM released WHERE state = 'scheduled') AS is_scheduled,
    EXISTS (SELECT 1 FROM edge WHERE stops) AS has_stops
