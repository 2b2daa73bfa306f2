-- alone
-- Store one job that is available at once, as insert.lua and insert_unique.lua do, at a third of their cost.
-- ARGV: queue; the payload without the time (packed: queue to arguments); the score of the first position of its priority; its
-- unique key, if it has one.
-- Returns: when it was inserted, its id; nothing, without having done anything, when a live job holds the key.
-- Code of the shared files is repeated here, because creating those functions anew costs more than storing a job.
if redis.replicate_commands then
    redis.replicate_commands() -- Redis 6
end
local P, call, queue = KEYS[1], redis.call, ARGV[1]
local key = ARGV[4] and P .. 'unique:' .. ARGV[4]
local holder = key and redis.pcall('GET', key) or '||' -- see holder_of() in writing.lua
if type(holder) ~= 'string' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' does not hold a string. Delete this key, which djqueue did not write.')
end
if holder:sub(1, 1) ~= '|' then
    return false
end
local time = call('TIME')
local at = time[1] * 1000000 + time[2]
local id = call('INCR', P .. 'seq')
local text = string.format('%.0f', id)
local ready, asleep = P .. 'ready:' .. queue, P .. 'asleep:' .. queue
local block = (id - id % 32768) / 32768
local ids = P .. 'ids:' .. block
-- One EXISTS for all: a key that is named twice counts twice.
local there = call('EXISTS', asleep, ids, ids, ready, ready, ready, ready)
call('SET', P .. 'job:' .. text, (key and '\155\1' or '\155\0') .. cmsgpack.pack(at) .. '\192\192' .. ARGV[2])
call('ZADD', ready, ARGV[3] + id, text)
if key then
    call('SET', key, text .. holder)
end
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
