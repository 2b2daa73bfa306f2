-- Control requests for suspended jobs of flows, which an ack may need at this moment, are events: they take effect after the commit
-- of the transaction that makes them, in one that locks nothing else.
wished AS (
    INSERT INTO djqueue_flowevent (kind, subject_id, detail)
    SELECT '{kind}', id, jsonb_build_object('by', %(by)s::text, 'reason', %(reason)s::text)
    FROM djqueue_job
    WHERE
        NOT %(is_settling)s::bool AND id = ANY(%(ids)s::bigint[]) AND state = 'suspended' AND pending IS NOT NULL
        AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
    RETURNING subject_id
)
