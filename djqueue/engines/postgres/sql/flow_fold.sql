-- Add up what acks and inserts have counted.
-- Params: ids bigint[] (of djqueue_flowcount: one's own, after the commit that wrote them; null: the oldest limit rows, for the look at
-- what was left behind), limit int, now timestamptz (null: the database's clock).
-- Returns: id, may_be_done (flow_finish.sql has to follow in the same transaction), is_failing (its first failure; others want to know),
-- counts (rows that were added up), has_events; these two are the same in each row.
-- synchronous_commit off: what a crash takes back is there to be added up again. The transaction that deletes a row adds it up, once.
-- Flows are locked in the order of their ids, and before any job.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at, set_config('synchronous_commit', 'off', true) AS setting
),
oldest AS MATERIALIZED (
    SELECT id
    FROM djqueue_flowcount
    WHERE %(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[])
    ORDER BY id
    LIMIT (SELECT %(limit)s::bigint)
    FOR UPDATE SKIP LOCKED
),
taken AS (
    DELETE FROM djqueue_flowcount WHERE id = ANY (ARRAY(SELECT id FROM oldest))
    RETURNING flow_id, added, completed, cancelled, discarded
),
plus AS MATERIALIZED (
    SELECT flow.id, t.added, t.completed, t.cancelled, t.discarded
    FROM (
        SELECT
            flow_id, sum(added)::int AS added, sum(completed)::int AS completed, sum(cancelled)::int AS cancelled,
            sum(discarded)::int AS discarded
        FROM taken
        GROUP BY flow_id
    ) AS t
    JOIN djqueue_flow AS flow ON flow.id = t.flow_id
    WHERE flow.id = ANY (ARRAY(SELECT flow_id FROM taken))
    ORDER BY flow.id
    FOR NO KEY UPDATE OF flow
),
folded AS (
    UPDATE djqueue_flow AS flow
    SET
        total = flow.total + plus.added,
        completed = flow.completed + plus.completed,
        cancelled = flow.cancelled + plus.cancelled,
        discarded = flow.discarded + plus.discarded,
        failed_at = CASE
            WHEN flow.cancelled + plus.cancelled + flow.discarded + plus.discarded > 0 THEN COALESCE(flow.failed_at, clock.at)
            ELSE flow.failed_at  -- a part may have failed
        END
    FROM plus, clock
    WHERE flow.id = ANY (ARRAY(SELECT id FROM plus)) AND flow.id = plus.id
    RETURNING
        flow.id, flow.on_failure, flow.total = flow.completed + flow.cancelled + flow.discarded AND NOT flow.is_open AS may_be_done,
        plus.cancelled + plus.discarded > 0 AND flow.failed_at = clock.at AS is_failing,
        flow.is_awaited OR flow.whole_id IS NOT NULL AS is_watched
),
-- include: cancel_rest failing=folded
SELECT
    id, may_be_done, is_failing AND is_watched AS is_failing, (SELECT count(*) FROM taken) AS counts,
    EXISTS (SELECT 1 FROM cancelling) AS has_events
FROM folded
