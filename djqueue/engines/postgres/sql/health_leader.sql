-- Report since when there is a leader and when its loops last did their work.
-- Params: none. Returns: one row or none: leader_seconds (null: the lease has expired), loops jsonb (name → seconds ago).
SELECT
    CASE WHEN expires_at > clock_timestamp() THEN extract(epoch FROM clock_timestamp() - elected_at)::float8 END AS leader_seconds,
    (
        SELECT COALESCE(jsonb_object_agg(key, extract(epoch FROM clock_timestamp() - value::timestamptz)::float8), '{}')
        FROM jsonb_each_text(loops)
    ) AS loops
FROM djqueue_leader
WHERE name = 'maintenance'
