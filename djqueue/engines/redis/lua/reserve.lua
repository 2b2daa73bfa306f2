-- Reserve ids for jobs that will be stored later. Ids of jobs that are never stored leave a gap.
-- ARGV: count. Returns: the first of them; they are consecutive.
return next_places(tonumber(ARGV[1]))
