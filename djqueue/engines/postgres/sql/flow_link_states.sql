-- Say how a job or flow ended that flow_link.sql did not find alive; wait for a transaction that lets its end take effect at this moment.
-- Params: upstream, downstream bigint. Returns: state as flow_release.sql takes it (deleted: there is nothing of this id), or no row: the end still has
-- to take effect. Its event is locked here, and the transaction that takes it afterwards sees the dependency.
-- A statement of its own after flow_link.sql: its snapshot is younger than the locks.
WITH waiting AS MATERIALIZED (
    SELECT id
    FROM djqueue_flowevent
    WHERE
        kind = 'ended' AND subject_id = %(upstream)s::bigint
        AND COALESCE(
            %(downstream)s::bigint > COALESCE((detail ->> 'after')::bigint, 0) AND %(downstream)s::bigint <= (detail ->> 'until')::bigint,
            true
        )
    ORDER BY id
    FOR UPDATE
)
SELECT COALESCE(
    (SELECT state FROM djqueue_finishedjob WHERE id = %(upstream)s::bigint),
    (SELECT CASE WHEN failed_at IS NULL THEN 'completed' ELSE 'failed' END FROM djqueue_flow WHERE id = %(upstream)s::bigint),
    'deleted'
) AS state
WHERE NOT EXISTS (SELECT 1 FROM waiting)
