-- Reserve ids for jobs that will be stored later; those that never come leave a gap.
-- ARGV: count. Returns: the first of them; they follow one another.
return next_places(tonumber(ARGV[1]))
