-- Store jobs.
-- ARGV: now (empty: the server's clock); the jobs, a flat msgpack array of nine for each: the values shared by jobs of its kind
-- (packed: queue to meta), arguments (packed), queue, priority, scheduled_at, delay, expires_at, max_age, unique key (false: none);
-- ids, a msgpack array (empty: the next ones). Given ids have been reserved, and a job that is already stored, or was taken, is
-- left unchanged. A job with a reserved id gets its position when it is stored, because the transaction that it waited for may
-- have been long and the id is old.
-- Returns: the time used as now, the first id, and a digit for each job: its state.
local at = moment(ARGV[1])
local jobs = cmsgpack.unpack(ARGV[2])
local ids = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3])
local count = #jobs / 9
local order = next_places(count)
local first = ids and ids[1] or order
local states, queues, soon = {}, {}, false
local there = {}
if ids then
    pass(ids)
    for number, id in ipairs(ids) do
        there[number] = is_marked(id)
    end
end
for number = 1, count do
    local place = (number - 1) * 9
    local id = ids and ids[number] or first + number - 1
    local text = text_of(id)
    if there[number] then
        states[number] = state_of(text)
    else
        local queue = jobs[place + 3]
        local due_at, delay = jobs[place + 5], jobs[place + 6]
        if not due_at and delay and delay > 0 then
            due_at = at + delay
        end
        local ends_at = jobs[place + 7] or jobs[place + 8] and at + jobs[place + 8]
        sets[#sets + 1] = P .. 'job:' .. text
        sets[#sets + 1] = '\155' .. pack(jobs[place + 9] and HAS_KEY or 0, at, due_at or nil, ends_at or nil)
            .. jobs[place + 1] .. jobs[place + 2]
        queues[queue] = true
        if due_at and due_at > at then
            states[number] = SCHEDULED
            make_wait(text, queue, SCHEDULED, due_at)
            soon = soon or due_at - at <= SOON
        else
            states[number] = AVAILABLE
            make_ready(text, queue, (100 - jobs[place + 4]) * LEVEL + order + number - 1)
        end
    end
end
flush(at)
if ids then
    for number, id in ipairs(ids) do
        if not there[number] then
            mark_id(id, 1)
        end
    end
else
    mark_ids(first, first + count - 1)
end
for queue in pairs(queues) do
    call('SADD', P .. 'queues', queue)
end
if soon then
    wake('!stage')
end
return {at, first, table.concat(states)}
