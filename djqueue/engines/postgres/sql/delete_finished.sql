-- Delete finished jobs, and the unique keys that they still hold.
-- Params: ids bigint[], only text[] (null: regardless of their state). Returns: the ids of those that were deleted.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_finishedjob
    WHERE
        -- include: chosen
),
-- include: delete table=djqueue_finishedjob
