-- Take or renew the lead, by the database's clock.
-- Params: holder uuid, ttl float (seconds), loops jsonb (name of each loop of the leader → seconds since it last did its work),
-- now timestamptz (null: the database's clock).
-- Returns: the term, or no row when somebody else leads. The term grows with every change of hands.
-- What the loops say is kept as times, so that it ages when the leader falls silent.
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
    -- A new leader's loops have done nothing yet; when they last ran under the former one stays known until they are told. A loop that
    -- the new leader does not have is forgotten then.
    loops = CASE WHEN EXCLUDED.loops = '{}' THEN leader.loops ELSE EXCLUDED.loops END
WHERE leader.holder = EXCLUDED.holder OR leader.expires_at < COALESCE(%(now)s::timestamptz, clock_timestamp())
RETURNING term
