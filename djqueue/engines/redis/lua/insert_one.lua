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
local ready, asleep = P .. 'ready:' .. queue, P .. 'asleep:' .. queue
local block = (id - id % 32768) / 32768
local ids = P .. 'ids:' .. block
-- One question for all: a key that is named twice counts twice.
local there = call('EXISTS', asleep, ids, ids, ready, ready, ready, ready)
call('SET', P .. 'job:' .. text, '\155\0' .. cmsgpack.pack(at) .. '\192\192' .. ARGV[2])
call('ZADD', ready, ARGV[3] + id, text)
call('SETBIT', ids, id % 32768, 1)
if there % 4 < 2 then
    call('ZADD', P .. 'blocks', block, block)
end
if there < 4 then
    call('SADD', P .. 'queues', queue)
end
if there % 2 == 1 then
    call('PUBLISH', P .. 'wake', queue)
    call('DEL', asleep)
end
return {at, id}
