-- Announce a worker.
-- ARGV: worker, info (opaque). Again after an answer that was lost: nothing happens. A dead worker does not come back to life by it.
go_on_when_full()
if call('HSETNX', P .. 'workers', ARGV[1], ARGV[2]) == 1 then
    call('HSET', P .. 'beats', ARGV[1], pack({0, clock(), false}))
end
