-- Store a small workflow: its flows, its jobs and their dependencies. Large ones are stored by COPY, with ids from reserve.sql.
-- Params: those of insert.sql; pending int[], is_awaited bool[], flow int[] (the place of the job's flow, from 1; null: none), one
-- element per job; flow_kind, flow_name, on_failure text[], whole int[] (a place), is_open, is_awaited_flow bool[], flow_meta jsonb[], one
-- element per flow; up_job, up_flow int[] (one of them is null), down int[], rule text[], one element per dependency: places from 1;
-- link_up bigint[], link_down int[], link_rule text[]: dependencies on what is stored already.
-- Returns: one row: flow_ids, job_ids, states, in the order of the input; inserted_at; counts (as ack_flow.sql).
-- The last two are events, because their effect locks what an ack may need: it comes after the commit (flow_link.sql). A flow without
-- jobs is counted once, so that it finishes.
WITH
-- include: numbered_input
,
flow AS MATERIALIZED (
    SELECT f.*, nextval((SELECT pg_get_serial_sequence('djqueue_job', 'id'))) AS id
    FROM unnest(
        %(flow_kind)s::text[], %(flow_name)s::text[], %(on_failure)s::text[], %(whole)s::int[], %(is_open)s::bool[],
        %(is_awaited_flow)s::bool[], %(flow_meta)s::jsonb[]
    ) WITH ORDINALITY AS f (kind, name, on_failure, whole, is_open, is_awaited, meta, place)
),
member AS MATERIALIZED (
    SELECT
        input.*, more.pending, more.is_awaited, more.flow AS flow_place, (SELECT id FROM flow WHERE flow.place = more.flow) AS flow_id,
        CASE WHEN more.pending > 0 THEN 'suspended' WHEN due_at > at THEN 'scheduled' ELSE 'available' END AS state
    FROM input
    JOIN unnest(%(pending)s::int[], %(is_awaited)s::bool[], %(flow)s::int[])
        WITH ORDINALITY AS more (pending, is_awaited, flow, place) ON more.place = input.place
),
stored AS (
    INSERT INTO djqueue_flow (
        id, whole_id, kind, name, on_failure, is_open, is_awaited, meta, inserted_at, total, first_id, last_id
    )
    SELECT
        flow.id, (SELECT id FROM flow AS whole WHERE whole.place = flow.whole), kind, name, on_failure, is_open, is_awaited, meta,
        COALESCE(%(now)s::timestamptz, clock_timestamp()), COALESCE(size.total, 0), COALESCE(size.first_id, 0), COALESCE(size.last_id, 0)
    FROM flow
    LEFT JOIN (
        SELECT flow_place, count(*) AS total, min(id) AS first_id, max(id) AS last_id FROM member GROUP BY flow_place
    ) AS size ON size.flow_place = flow.place
    RETURNING id, total, is_open, inserted_at
),
counted AS (
    INSERT INTO djqueue_flowcount (flow_id) SELECT id FROM stored WHERE total = 0 AND NOT is_open RETURNING id
),
inserted AS (
    INSERT INTO djqueue_job (
        id, state, queue, task, flow_id, is_awaited, pending, args, kwargs, priority, max_attempts, inserted_at, ready_at, scheduled_at,
        expires_at, meta
    )
    SELECT
        id, state, queue, task, flow_id, is_awaited, NULLIF(pending, 0), args, kwargs, priority, max_attempts, at,
        CASE WHEN state = 'available' THEN at END, due_at, ends_at, meta
    FROM member
    ORDER BY place
),
linked AS (
    INSERT INTO djqueue_dependency (upstream_id, downstream_id, rule)
    SELECT
        COALESCE((SELECT id FROM member WHERE place = e.up_job), (SELECT id FROM flow WHERE place = e.up_flow)),
        (SELECT id FROM member WHERE place = e.down), e.rule
    FROM unnest(%(up_job)s::int[], %(up_flow)s::int[], %(down)s::int[], %(rule)s::text[]) AS e (up_job, up_flow, down, rule)
),
noted AS (
    INSERT INTO djqueue_flowevent (kind, subject_id, detail)
    SELECT 'link', e.up, jsonb_agg(jsonb_build_array((SELECT id FROM member WHERE place = e.down), e.rule) ORDER BY e.down)
    FROM unnest(%(link_up)s::bigint[], %(link_down)s::int[], %(link_rule)s::text[]) AS e (up, down, rule)
    GROUP BY e.up
)
SELECT
    COALESCE((SELECT array_agg(id ORDER BY place) FROM flow), '{}') AS flow_ids,
    COALESCE((SELECT array_agg(id ORDER BY place) FROM member), '{}') AS job_ids,
    COALESCE((SELECT array_agg(state ORDER BY place) FROM member), '{}') AS states,
    COALESCE((SELECT min(at) FROM member), (SELECT min(inserted_at) FROM stored), clock_timestamp()) AS inserted_at,
    (SELECT array_agg(id) FROM counted) AS counts
