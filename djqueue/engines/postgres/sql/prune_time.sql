-- Work out the time before which a rule of the pruner deletes finished jobs.
-- Params: age float (seconds; null: no limit), oldest timestamptz (of the jobs that may stay by count; null: no limit),
-- now timestamptz (null: the database's clock). Returns: cutoff, as text, because a Python datetime cannot be infinite.
SELECT GREATEST(
    COALESCE(%(now)s::timestamptz, clock_timestamp()) - %(age)s::float8 * interval '1 second',
    %(oldest)s::timestamptz,
    '-infinity'
)::text AS cutoff
