-- Count live jobs by queue and state.
-- Returns: for each queue with jobs, a flat list of queue, available, executing, scheduled, retryable, suspended, and how many
-- microseconds the oldest available job has waited (false: no such job).
local now = clock()
local counts, order = {}, {}
local function add(queue, place, number)
    if not counts[queue] then
        counts[queue] = {0, 0, 0, 0, 0}
        order[#order + 1] = queue
    end
    counts[queue][place] = counts[queue][place] + number
end
for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
    local available = call('ZCARD', P .. 'ready:' .. queue)
    if available > 0 then
        add(queue, 1, available)
    end
end
for _, text in ipairs(call('HVALS', P .. 'executing')) do
    add(select(5, proof(text)), 2, 1)
end
local fields = call('HGETALL', P .. 'waiting')
for place = 1, #fields, 2 do
    local state, queue = fields[place]:match('^(%d)\n(.*)$')
    state = tonumber(state)
    add(queue, state == SCHEDULED and 3 or state == RETRYABLE and 4 or 5, tonumber(fields[place + 1]))
end
local answer = {}
for _, queue in ipairs(order) do
    local row = counts[queue]
    answer[#answer + 1] = {queue, row[1], row[2], row[3], row[4], row[5], row[1] > 0 and oldest_wait(queue, now) or false}
end
return answer
