-- Always true. If relaxed, the commit does not wait for the disk; only where this statement is a transaction of its own, because the
-- setting lasts until the transaction ends.
NOT %(relaxed)s::bool OR set_config('synchronous_commit', 'off', true) = 'off'
