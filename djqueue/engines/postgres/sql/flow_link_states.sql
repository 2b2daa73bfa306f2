-- Say how a job or flow ended that flow_link.sql did not find alive; wait for a transaction that lets its end take effect at this moment.
-- Params: upstream bigint, downstream bigint[]. Returns: downstream, state as flow_release.sql takes it (deleted: there is nothing of this
-- id). Dependents on which the end still has to take effect are left out: its event is locked here, and the transaction that takes it
-- afterwards sees the dependencies.
-- A statement of its own after flow_link.sql: its snapshot is younger than the locks.
WITH waiting AS MATERIALIZED (
    SELECT COALESCE((detail ->> 'after')::bigint, 0) AS after, (detail ->> 'until')::bigint AS until
    FROM djqueue_flowevent
    WHERE kind = 'ended' AND subject_id = %(upstream)s::bigint
    ORDER BY id
    FOR UPDATE
)
SELECT wanted.id, COALESCE(
    (SELECT state FROM djqueue_finishedjob WHERE id = %(upstream)s::bigint),
    (SELECT CASE WHEN failed_at IS NULL THEN 'completed' ELSE 'failed' END FROM djqueue_flow WHERE id = %(upstream)s::bigint),
    'deleted'
) AS state
FROM unnest(%(downstream)s::bigint[]) AS wanted (id)
WHERE NOT EXISTS (SELECT 1 FROM waiting WHERE wanted.id > after AND (until IS NULL OR wanted.id <= until))
