-- Take or renew the lead, by the database's clock.
-- Params: holder uuid, ttl float (seconds), now timestamptz (null: the database's clock).
-- Returns: the term, or no row when somebody else leads. The term grows with every change of hands.
INSERT INTO djqueue_leader AS leader (name, holder, term, expires_at)
SELECT 'maintenance', %(holder)s, 1, at + %(ttl)s * interval '1 second'
FROM (SELECT COALESCE(%(now)s::timestamptz, clock_timestamp()) AS at) AS clock
ON CONFLICT (name) DO UPDATE
SET
    holder = EXCLUDED.holder,
    term = leader.term + CASE WHEN leader.holder = EXCLUDED.holder THEN 0 ELSE 1 END,
    expires_at = EXCLUDED.expires_at
WHERE leader.holder = EXCLUDED.holder OR leader.expires_at < COALESCE(%(now)s::timestamptz, clock_timestamp())
RETURNING term
