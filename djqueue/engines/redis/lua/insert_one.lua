-- alone
-- Store one job without a unique key that is available at once: what insert.lua does, at a third of its price.
-- ARGV: queue; what the payload says besides the time (packed: queue to arguments); the score of the first place of its priority.
-- Returns: when it was inserted, its id.
-- Everything in lib.lua that this does too is written out here: to make those functions anew costs more than to store a job.
local P, call, queue = KEYS[1], redis.call, ARGV[1]
local time = call('TIME')
local at = time[1] * 1000000 + time[2]
local id = call('INCR', P .. 'seq')
local text = string.format('%.0f', id)
call('SET', P .. 'job:' .. text, '\155\0' .. cmsgpack.pack(at) .. '\192\192' .. ARGV[2])
call('ZADD', P .. 'ready:' .. queue, ARGV[3] + id, text)
call('SETBIT', string.format('%sids:%.0f', P, (id - id % 32768) / 32768), id % 32768, 1)
call('SADD', P .. 'queues', queue)
if call('EXISTS', P .. 'asleep:' .. queue) == 1 then
    call('PUBLISH', P .. 'wake', queue)
    call('DEL', P .. 'asleep:' .. queue)
end
return {at, id}
