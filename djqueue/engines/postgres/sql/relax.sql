-- Let the commit of this transaction not wait for the disk.
-- Params: none. Only in a transaction of ours: it holds for all that is written in it.
SELECT set_config('synchronous_commit', 'off', true)
