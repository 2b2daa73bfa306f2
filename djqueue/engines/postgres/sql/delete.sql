-- Delete live jobs that wait, without a trace.
-- Params: ids bigint[], only text[] (null: regardless of their state). Returns: the ids of those that were deleted.
-- Never a job that executes: its worker could not record the outcome. Waits for transactions that hold a row; see cancel.sql.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_job
    WHERE
        state <> 'executing' AND
        -- include: chosen
),
-- include: delete table=djqueue_job
