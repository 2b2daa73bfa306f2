-- Finish jobs of flows, and jobs that others wait for: what ack.sql does, and count them.
-- Params: as those of ack.sql, and as_events bool: leave the effect of the ends on other jobs to events.
-- Returns: id, unique_key, state, is_awaited (unless as_events, flow_release.sql has to follow in the same transaction), counts (ids of
-- djqueue_flowcount, the same in each row: flow_fold.sql adds them up after the commit).
-- A statement of its own before flow_release.sql: with one snapshot for both, a dependency that is committed while this one waits for
-- the row of its upstream would be missed.
WITH
-- include: outcomes
-- include: done
,
finished AS (
    -- include: finished
    RETURNING id, unique_key, state, flow_id, is_awaited
),
-- include: ends ended=finished as_events=%(as_events)s::bool
SELECT id, unique_key, state, is_awaited, (SELECT array_agg(id) FROM counted) AS counts FROM finished
