-- Become the leader or renew the lease, by the database's clock.
-- Params: holder uuid, ttl float (seconds), loops jsonb (name of each loop of the leader → seconds since it last did its work),
-- now timestamptz (null: the database's clock).
-- Returns: the term, or no row if another process is the leader. The term grows with every change of the leader.
-- The ages are stored as times, so that they grow when the leader stops reporting.
INSERT INTO djqueue_leader AS leader (name, holder, term, expires_at, elected_at, loops)
SELECT
    'maintenance', %(holder)s, 1, at + %(ttl)s * interval '1 second', at,
    (SELECT COALESCE(jsonb_object_agg(key, at - value::float8 * interval '1 second'), '{}') FROM jsonb_each_text(%(loops)s::jsonb))
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (name) DO UPDATE
SET
    holder = EXCLUDED.holder,
    term = leader.term + CASE WHEN leader.holder = EXCLUDED.holder THEN 0 ELSE 1 END,
    expires_at = EXCLUDED.expires_at,
    elected_at = CASE WHEN leader.holder = EXCLUDED.holder THEN leader.elected_at ELSE EXCLUDED.elected_at END,
    -- The loops of a new leader have done nothing yet; the times of the former leader stay until it reports its own. A loop that the
    -- new leader does not have is forgotten then.
    loops = CASE WHEN EXCLUDED.loops = '{}' THEN leader.loops ELSE EXCLUDED.loops END
WHERE leader.holder = EXCLUDED.holder OR leader.expires_at < COALESCE(%(now)s::timestamptz, clock_timestamp())
RETURNING term
