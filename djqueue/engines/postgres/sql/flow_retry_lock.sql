-- Keep dependencies on what has ended from being added, until this transaction ends. Params: is_retry bool. Returns: one row.
-- A statement of its own: the snapshots of those that follow are younger than the lock. Links share it with each other.
SELECT CASE WHEN %(is_retry)s::bool THEN pg_advisory_xact_lock(hashtext('djqueue.link')) ELSE pg_advisory_xact_lock_shared(hashtext('djqueue.link')) END
