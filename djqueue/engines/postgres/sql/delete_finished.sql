-- Delete finished jobs, and the unique keys that they still hold.
-- Params: ids bigint[], only text[] (null: regardless of their state). Returns: the ids of those that were deleted.
-- The ends of these jobs were counted and had their effect when they ended.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM djqueue_finishedjob
    WHERE
        -- include: chosen
),
-- include: delete table=djqueue_finishedjob
SELECT id FROM deleted
