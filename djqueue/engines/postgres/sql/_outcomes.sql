-- The outcomes of an ack, one array per column, and the time of this write (at); then the beginning of the DELETE that takes the jobs,
-- to which the statement that includes this may add conditions. It ends with _done.sql.
outcome AS MATERIALIZED (
    SELECT o.*, COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
    FROM unnest(
        %(id)s::bigint[], %(claim)s::bigint[], %(state)s::text[], %(started_ago)s::float8[], %(finished_ago)s::float8[],
        %(result)s::jsonb[], %(error)s::jsonb[], %(is_spent)s::bool[]
    ) AS o (id, claim, state, started_ago, finished_ago, result, error, is_spent)
),
done AS (
    DELETE FROM djqueue_job AS job
    USING outcome AS o
    WHERE
        -- include: fence
