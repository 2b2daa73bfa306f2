-- Let jobs wait for a job or flow that was stored before them.
-- Params: upstream bigint, downstream bigint[], rule text[]. Returns: one row: has_ended (flow_link_states.sql says how, and flow_release.sql
-- acts for these pairs alone), is_failing (a flow that has failed already and goes on), queue (of an available upstream: see below).
-- The dependents were stored, suspended, by a transaction of the application, which may not lock what an ack needs; so this comes after its
-- commit, in a transaction of its own. The lock of the upstream's row decides: if it lives, its end comes later and sees the dependency;
-- if it is gone, its end has not seen it.
-- A job for which no other has waited so far is marked: an ack whose snapshot is older finds the mark on the row that it locks. A fetch
-- may skip an available row while it is locked here, so its queue is woken.
WITH flow AS MATERIALIZED (
    SELECT id, failed_at IS NOT NULL AS is_failing
    FROM djqueue_flow
    WHERE id = %(upstream)s::bigint AND finished_at IS NULL
    FOR NO KEY UPDATE
),
job AS MATERIALIZED (
    SELECT id, queue, state
    FROM djqueue_job
    WHERE id = %(upstream)s::bigint
    FOR UPDATE
),
marked_flow AS (
    UPDATE djqueue_flow SET is_awaited = true WHERE id IN (SELECT id FROM flow) AND NOT is_awaited
),
marked AS (
    UPDATE djqueue_job SET is_awaited = true WHERE id IN (SELECT id FROM job) AND is_awaited IS NULL
),
linked AS (
    INSERT INTO djqueue_dependency (upstream_id, downstream_id, rule)
    SELECT %(upstream)s::bigint, downstream, rule FROM unnest(%(downstream)s::bigint[], %(rule)s::text[]) AS w (downstream, rule)
    ON CONFLICT DO NOTHING
)
SELECT
    NOT EXISTS (SELECT 1 FROM flow) AND NOT EXISTS (SELECT 1 FROM job) AS has_ended,
    EXISTS (SELECT 1 FROM flow WHERE is_failing) AS is_failing,
    (SELECT queue FROM job WHERE state = 'available') AS queue
