-- Register a worker.
-- ARGV: worker, info (opaque). A retry after a lost response changes nothing, and a dead worker is not revived.
go_on_when_full()
if call('HSETNX', P .. 'workers', ARGV[1], ARGV[2]) == 1 then
    call('HSET', P .. 'beats', ARGV[1], pack({0, clock(), false}))
end
