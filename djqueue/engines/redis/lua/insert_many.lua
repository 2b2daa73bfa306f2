-- Store jobs that differ in their arguments only.
-- ARGV: now (empty: the server's clock); what they share, twice: packed (queue to meta), and as a msgpack array of queue, priority,
-- scheduled_at, delay, expires_at, max_age (false: none); a msgpack array of their arguments (packed); the first of their ids,
-- which were reserved together (empty: the next ones), as in insert.lua.
-- Returns: the time used as now, the first id, their state.
local at = moment(ARGV[1])
local common = ARGV[2]
local queue, priority, due_at, delay, ends_at, max_age = unpack(cmsgpack.unpack(ARGV[3]))
local arguments = cmsgpack.unpack(ARGV[4])
local count = #arguments
local order = next_places(count)
local is_given = ARGV[5] ~= ''
local first = is_given and tonumber(ARGV[5]) or order
if is_given then
    pass({first + count - 1})
end
if not due_at and delay and delay > 0 then
    due_at = at + delay
end
ends_at = ends_at or max_age and at + max_age
local start = '\155' .. pack(0, at, due_at or nil, ends_at or nil) .. common
local is_early = due_at and due_at > at
local score = (100 - priority) * LEVEL + order - 1
local job_at, format, stored, list = P .. 'job:', string.format, 0, {}
for number = 1, count do
    local id = first + number - 1
    if not (is_given and is_marked(id)) then
        local text = format('%.0f', id)
        stored = stored + 1
        sets[2 * stored - 1], sets[2 * stored] = job_at .. text, start .. arguments[number]
        if is_early then
            make_wait(text, queue, SCHEDULED, due_at)
        else
            list[2 * stored - 1], list[2 * stored] = score + number, text
        end
    end
end
if not is_early then
    ready[queue] = list
end
flush(at)
mark_ids(first, first + count - 1)
call('SADD', P .. 'queues', queue)
if is_early and due_at - at <= SOON then
    wake('!stage')
end
return {at, first, is_early and SCHEDULED or AVAILABLE}
