-- Keep waiting jobs from beginning before the caller's transaction ends, so that their runs see what it writes.
-- Params: keys text[], now timestamptz (null: the database's clock), relaxed bool (not used).
-- Returns: unique_key, id, state, inserted_at, queue of the jobs that are held. Not of one that has been due for a second: transactions
-- that come one after the other would keep it from beginning for ever.
-- An array from a sub-select leads the planner to the index of the keys: see ack.sql.
-- KEY SHARE: the weakest lock that fetch.sql and stage.sql pass over. Callers do not wait for each other.
SELECT unique_key, id, state, inserted_at, queue
FROM djqueue_job
WHERE
    unique_key = ANY (ARRAY(SELECT unnest(%(keys)s::text[]))) AND state <> 'executing'
    AND COALESCE(ready_at, scheduled_at, inserted_at) > COALESCE(%(now)s::timestamptz, clock_timestamp()) - interval '1 second'
ORDER BY unique_key
FOR KEY SHARE
