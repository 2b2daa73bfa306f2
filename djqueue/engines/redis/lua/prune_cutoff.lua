-- needs: waiting
-- Find when the newest job beyond a retention count finished: one page of a scan of the history, backwards.
-- ARGV: state; queue, task (empty: any); msgpack arrays of the queues and of the tasks that have a rule of their own; how many jobs
-- remain to be kept; where the last page ended: a time and how many jobs that finished then it has seen; how many jobs to examine.
-- Returns: how many were examined, how many remain to be kept (0: the next value is the cutoff), and where this page ended.
local state, queue, task, left = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[6])
local last, skip = ARGV[7], tonumber(ARGV[8])
local other_queues, other_tasks = {}, {}
for _, name in ipairs(cmsgpack.unpack(ARGV[4])) do
    other_queues[name] = true
end
for _, name in ipairs(cmsgpack.unpack(ARGV[5])) do
    other_tasks[name] = true
end
local is_special = queue ~= '' or task ~= '' or next(other_queues) or next(other_tasks)

local function counts(id)
    if select(2, peek_run(id)) ~= state then
        return false
    elseif not is_special then
        return true
    end
    local _, _, _, _, its_queue, _, _, _, its_task = beginning_of(id, 9)
    return (queue == '' or its_queue == queue) and (task == '' or its_task == task)
        and not other_queues[its_queue or ''] and not other_tasks[its_task or '']
end

local found = call('ZREVRANGEBYSCORE', P .. 'finished', last, '-inf', 'WITHSCORES', 'LIMIT', skip, ARGV[9])
for place = 1, #found, 2 do
    if found[place + 1] ~= last then
        last, skip = found[place + 1], 0
    end
    skip = skip + 1
    if counts(found[place]) then
        left = left - 1
        if left == 0 then
            break
        end
    end
end
return {#found / 2, left, last, skip}
