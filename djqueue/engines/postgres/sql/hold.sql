-- Keep waiting jobs from starting before the caller's transaction ends, so that their runs see what it writes.
-- Params: keys text[], now timestamptz (null: the database's clock), relaxed bool (not used).
-- Returns: unique_key, id, state, inserted_at, queue of the jobs that are held. A job that has been due for a second is not held:
-- a sequence of transactions would keep it from starting for ever.
-- An array from a sub-select leads the planner to the index of the keys: see _fence.sql.
-- KEY SHARE: the weakest lock that makes fetch.sql and stage.sql skip a row. Callers do not wait for each other.
SELECT unique_key, id, state, inserted_at, queue
FROM djqueue_job
WHERE
    unique_key = ANY (ARRAY(SELECT unnest(%(keys)s::text[]))) AND state <> 'executing'
    AND COALESCE(ready_at, scheduled_at, inserted_at) > COALESCE(%(now)s::timestamptz, clock_timestamp()) - interval '1 second'
ORDER BY unique_key
FOR KEY SHARE
