-- Store flows whose ids are reserved. Params: one array per column, one element per flow; now timestamptz.
-- Returns: id of those stored, counts (as ack_flow.sql). An unfinished flow with the same unique key keeps another from being stored.
-- ON CONFLICT waits for an uncommitted holder of the key. A flow without jobs is counted once, so that it finishes.
WITH stored AS (
    INSERT INTO djqueue_flow (
        id, whole_id, kind, name, on_failure, is_open, is_awaited, meta, unique_key, total, first_id, last_id, inserted_at
    )
    SELECT f.*, %(now)s::timestamptz
    FROM unnest(
        %(id)s::bigint[], %(whole_id)s::bigint[], %(kind)s::text[], %(name)s::text[], %(on_failure)s::text[], %(is_open)s::bool[],
        %(is_awaited)s::bool[], %(meta)s::jsonb[], %(unique_key)s::text[], %(total)s::int[], %(first_id)s::bigint[], %(last_id)s::bigint[]
    ) AS f
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL DO NOTHING
    RETURNING id, total, is_open
),
counted AS (
    INSERT INTO djqueue_flowcount (flow_id) SELECT id FROM stored WHERE total = 0 AND NOT is_open RETURNING id
)
SELECT id, (SELECT array_agg(id) FROM counted) AS counts FROM stored
