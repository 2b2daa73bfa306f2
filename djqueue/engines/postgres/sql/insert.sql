-- Store jobs, and say in input order what became of each.
-- Params: one array per column, all of the same length; now timestamptz (null: the database's clock); relaxed bool (the commit does not
-- wait for the disk; only where this statement is a transaction of its own).
-- Returns: id, state, inserted_at, was_duplicate.
-- ON CONFLICT waits for an uncommitted holder of the key, and inserts if that transaction rolls back. Keys are inserted in their order,
-- or two transactions with the same keys could wait for each other; run order is that of the ids, which follow the input.
-- A duplicate has no id here: its holder may be younger than this statement's snapshot. See holders.sql.
WITH
-- include: numbered_input
,
inserted AS (
    -- include: insert_input
    ORDER BY unique_key, place
    ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id, state, inserted_at
)
SELECT inserted.id, inserted.state, COALESCE(inserted.inserted_at, input.at) AS inserted_at, inserted.id IS NULL AS was_duplicate
FROM input
LEFT JOIN inserted ON inserted.id = input.id
ORDER BY input.place
