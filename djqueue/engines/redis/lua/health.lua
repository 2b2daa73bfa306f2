-- Read what shows whether jobs are being processed.
-- Returns: the time; for each queue that was ever used, is paused or has executing jobs, its name, how many microseconds its oldest
-- available job has waited (false: none), whether jobs execute and whether it is paused; workers, beats and dead as in
-- workers.lua; the hash leader; when the first job for the stager is due (false: none); how many jobs the history has; some of the
-- parked jobs: id and task, and why, in a flat list; how many entries of the crontab have times, and how long ago a scheduler last
-- declared its entries (false: never).
local now = clock()
local busy, paused, names, queues = {}, {}, {}, {}
for _, text in ipairs(call('HVALS', P .. 'executing')) do
    busy[select(5, proof(text))] = true
end
for _, queue in ipairs(call('HKEYS', P .. 'paused')) do
    paused[queue] = true
end
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    names[queue] = true
end
for _, others in ipairs({busy, paused}) do
    for queue in pairs(others) do
        names[queue] = true
    end
end
for queue in pairs(names) do
    queues[#queues + 1] = {queue, oldest_wait(queue, now) or false, busy[queue] and 1 or 0, paused[queue] and 1 or 0}
end
local aside = {}
for place, text in ipairs(call('HSCAN', P .. 'parked', 0, 'COUNT', 10)[2]) do
    aside[place] = text
    if place % 2 == 1 then
        aside[#aside] = {text, select(9, beginning_of(text, 9)) or ''}
    end
end
local declared
for _, text in ipairs(call('HVALS', P .. 'schedulers')) do
    declared = math.max(declared or 0, tonumber(cmsgpack.unpack(text)[4]))
end
return {
    now, queues, call('HGETALL', P .. 'workers'), call('HGETALL', P .. 'beats'), call('HKEYS', P .. 'dead'),
    call('HGETALL', P .. 'leader'), call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2] or false, call('ZCARD', P .. 'finished'),
    aside, call('ZCARD', P .. 'cron:due'), declared and now - declared or false,
}
