-- Delete finished jobs that are older than their rule allows: one step of a walk along djqueue_finishedjob_finished.
-- Params: one array per column, all of the same length, of the rules: rule_state, rule_queue and rule_task text (null:
-- any; a rule has at most one of the two), rule_cutoff timestamptz (what finished earlier goes; '-infinity': nothing does);
-- queue text (null: all); after_at timestamptz, after_id bigint (where the last step ended); limit int (jobs to look at);
-- is_dry_run bool (count, delete nothing).
-- Returns: one row: seen (jobs), count (deleted), last_at (text) and last_id (where this step ended; null: nothing was left to see).
-- The most specific rule applies: that of the task, then that of the queue, then the general one.
-- A step looks at a number of jobs instead of deleting a number: jobs that are kept for longer would otherwise make one
-- statement walk for minutes. after_at carries the walk past them.
-- SKIP LOCKED and the order of the ids: it waits for no other transaction and cannot deadlock. synchronous_commit off: rows that a
-- crash brings back are deleted again, so there is no need to wait for the disk.
WITH setting AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true) AS value
),
rule AS MATERIALIZED (
    SELECT *
    FROM unnest(%(rule_state)s::text[], %(rule_queue)s::text[], %(rule_task)s::text[], %(rule_cutoff)s::timestamptz[])
        AS r (state, queue, task, cutoff)
),
step AS MATERIALIZED (
    SELECT id, finished_at, state, queue, task, flow_id
    FROM djqueue_finishedjob
    WHERE
        finished_at < (SELECT max(cutoff) FROM rule)
        AND finished_at >= %(after_at)s::timestamptz AND (finished_at, id) > (%(after_at)s::timestamptz, %(after_id)s::bigint)
    ORDER BY finished_at, id
    LIMIT (SELECT %(limit)s::bigint)
),
expired AS MATERIALIZED (
    SELECT step.id
    FROM step
    LEFT JOIN rule AS of_task ON of_task.state = step.state AND of_task.task = step.task
    LEFT JOIN rule AS of_queue ON of_queue.state = step.state AND of_queue.queue = step.queue
    LEFT JOIN rule AS of_all ON of_all.state = step.state AND of_all.task IS NULL AND of_all.queue IS NULL
    WHERE
        step.finished_at < COALESCE(of_task.cutoff, of_queue.cutoff, of_all.cutoff)
        AND (%(queue)s::text IS NULL OR step.queue = %(queue)s::text)
        -- What is left of a workflow may want the results of its jobs.
        AND (step.flow_id IS NULL OR NOT EXISTS (
            WITH RECURSIVE above AS (
                SELECT flow.whole_id, flow.finished_at FROM djqueue_flow AS flow WHERE flow.id = step.flow_id
                UNION ALL
                SELECT flow.whole_id, flow.finished_at FROM above JOIN djqueue_flow AS flow ON flow.id = above.whole_id
            )
            SELECT 1 FROM above WHERE finished_at IS NULL
        ))
),
locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_finishedjob
    WHERE id = ANY (ARRAY(SELECT id FROM expired)) AND NOT %(is_dry_run)s::bool
    ORDER BY id
    FOR UPDATE SKIP LOCKED
),
deleted AS (
    DELETE FROM djqueue_finishedjob WHERE id = ANY (ARRAY(SELECT id FROM locked)) RETURNING id
)
SELECT
    (SELECT count(*) FROM step) AS seen,
    CASE WHEN %(is_dry_run)s::bool THEN (SELECT count(*) FROM expired) ELSE (SELECT count(*) FROM deleted) END AS count,
    last.finished_at::text AS last_at,
    last.id AS last_id
FROM setting
LEFT JOIN (SELECT finished_at, id FROM step ORDER BY finished_at DESC, id DESC LIMIT 1) AS last ON true
