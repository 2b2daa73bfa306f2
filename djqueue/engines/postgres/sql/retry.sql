-- Make finished jobs available again: move each back to the live table.
-- Params: ids bigint[], only text[] (null: regardless of their state), now timestamptz (null: the database's clock).
-- Returns: id, queue of the jobs that were moved. A job whose unique key is held by a live one stays where it is,
-- and so does one that belongs to a flow, or waits for one, or that one waited for: the counts of the flow, and of what waits, hold its end.
-- Only what was inserted is deleted; the other order loses the job when the insert meets a conflict. One statement, so
-- that a reader sees the job in exactly one of the tables. Inserted in the order of their keys, as in
-- insert.sql.
-- A follow-up that was cancelled while it waited competes for the key that it waited for.
-- The claim is kept. Attempts go on counting, with room for at least one more; a due or expiry time, a result and a cancel request
-- are not carried over.
WITH clock AS MATERIALIZED (
    SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at
),
finished AS MATERIALIZED (
    SELECT *
    FROM djqueue_finishedjob
    WHERE
        flow_id IS NULL AND is_awaited IS NOT TRUE AND pending IS NULL AND
        -- include: chosen
),
inserted AS (
    INSERT INTO djqueue_job (
        -- include: carried
        attempt, attempted_at, started_at, errors, state, max_attempts, ready_at, unique_key
    )
    SELECT
        -- include: carried
        attempt, attempted_at, started_at, errors, 'available', GREATEST(max_attempts, attempt + 1), (SELECT at FROM clock),
        CASE WHEN unique_key LIKE '%%:next' THEN left(unique_key, -5) ELSE unique_key END
    FROM finished
    ORDER BY unique_key, id
    ON CONFLICT DO NOTHING
    RETURNING id, queue
),
moved AS (
    DELETE FROM djqueue_finishedjob AS job USING inserted WHERE job.id = inserted.id
)
SELECT id, queue FROM inserted ORDER BY id
