-- Count the ends of jobs of flows; the counts are added up after the commit (flow_fold.sql), so that no statement waits for the row of
-- a flow. And leave an event for each job that others wait for: its effect on them comes after the commit, in a transaction that may
-- lock them (flow_events.sql).
counted AS (
    INSERT INTO djqueue_flowcount (flow_id, completed, cancelled, discarded)
    SELECT
        flow_id, count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state IN ('cancelled', 'deleted')),
        count(*) FILTER (WHERE state = 'discarded')
    FROM {ended}
    WHERE flow_id IS NOT NULL
    GROUP BY flow_id
    RETURNING id
),
noted AS (
    INSERT INTO djqueue_flowevent (kind, subject_id, state)
    SELECT 'ended', id, state FROM {ended} WHERE is_awaited AND {as_events}
    RETURNING id
)
