-- Pause a queue: fetch.lua claims no more of its jobs. Executing jobs continue.
-- ARGV: now, queue, who, why. Returns: 1 if the queue was not paused before; otherwise the first pause keeps its who and why.
go_on_when_full()
return call('HSETNX', P .. 'paused', ARGV[2], pack({moment(ARGV[1]), ARGV[3], ARGV[4]}))
