-- The jobs that are to be changed, locked in the order of their ids, so that two such statements cannot deadlock.
-- Params: ids bigint[], only text[] (null: regardless of their state).
id = ANY(%(ids)s::bigint[]) AND (%(only)s::text[] IS NULL OR state = ANY(%(only)s::text[]))
ORDER BY id
FOR UPDATE
