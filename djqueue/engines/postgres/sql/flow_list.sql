-- List flows that are no parts, newest first.
-- Params: kind text, name text (null: any), is_finished bool (null: both), before bigint, limit int. Returns: rows as Flow.
-- Walks the primary key backwards. The sums are made for the flows of the answer only.
SELECT
    -- include: flow_row
FROM (
    SELECT *
    FROM djqueue_flow
    WHERE
        id < %(before)s::bigint AND kind <> 'part'
        AND (%(kind)s::text IS NULL OR kind = %(kind)s::text)
        AND (%(name)s::text IS NULL OR name = %(name)s::text)
        AND (%(is_finished)s::bool IS NULL OR (finished_at IS NOT NULL) = %(is_finished)s::bool)
    ORDER BY id DESC
    LIMIT %(limit)s
) AS flow
-- include: flow_sums
ORDER BY flow.id DESC
