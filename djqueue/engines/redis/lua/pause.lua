-- Pause a queue: fetch.lua claims nothing of it any more. What executes goes on.
-- ARGV: now, queue, who, why. Returns: 1 if the queue was not paused before; who paused it first, and why, stays.
go_on_when_full()
return call('HSETNX', P .. 'paused', ARGV[2], pack({moment(ARGV[1]), ARGV[3], ARGV[4]}))
