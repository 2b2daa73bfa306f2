-- Store what a finished step of a running job returned. Params: id bigint, claim bigint, name text, value jsonb.
-- Returns: id, or no row: the claim is lost, and the job must end here.
-- In meta, which a fetch returns with the job and the history keeps. No indexed column: a HOT update while the page has room.
UPDATE djqueue_job
SET meta = jsonb_set(meta, '{steps}', COALESCE(meta -> 'steps', '{}') || jsonb_build_object(%(name)s::text, %(value)s::jsonb))
WHERE id = %(id)s::bigint AND claim = %(claim)s::bigint AND state = 'executing'
RETURNING id
