-- Mark workers as dead for ever. Their row stays until a later rescue finds nothing of theirs. Params: workers uuid[].
UPDATE djqueue_worker SET died_at = clock_timestamp() WHERE id = ANY(%(workers)s::uuid[]) AND died_at IS NULL
