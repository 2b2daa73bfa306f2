-- Commit this transaction without waiting for the disk.
-- Params: none. Only in djqueue's own transactions: it applies to all that they write.
SELECT set_config('synchronous_commit', 'off', true)
