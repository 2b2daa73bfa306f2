-- needs: waiting
-- List the jobs of some states from the indexes of these states, if they are few, so that a search need not scan all others.
-- ARGV: states (digits; empty: all), queue (empty: any), how many are few.
-- Returns: the ids, unordered, including other jobs; false if they are too many, or if jobs are suspended, which have no index.
local states, most = ARGV[1], tonumber(ARGV[3])
local names, count, ids = {}, 0, {}
local function has_room(number)
    count = count + number
    return count <= most
end
if is_among(states, SUSPENDED) then
    for _, field in ipairs(call('HKEYS', P .. 'waiting')) do
        if field:sub(1, 1) == tostring(SUSPENDED) then
            return false
        end
    end
end
local is_due = is_among(states, SCHEDULED) or is_among(states, RETRYABLE)
local is_final = is_among(states, COMPLETED) or is_among(states, DISCARDED) or is_among(states, CANCELLED)
if is_due and not has_room(call('ZCARD', P .. 'due')) or is_final and not has_room(call('ZCARD', P .. 'finished'))
    or is_among(states, EXECUTING) and not has_room(call('HLEN', P .. 'executing')) then
    return false
end
if is_among(states, AVAILABLE) then
    names = ARGV[2] ~= '' and {ARGV[2]} or call('SMEMBERS', P .. 'queues')
    for _, queue in ipairs(names) do
        if not has_room(call('ZCARD', P .. 'ready:' .. queue)) then
            return false
        end
    end
end
local function add(members, id_of)
    for _, member in ipairs(members) do
        ids[#ids + 1] = id_of and id_of(member) or member
    end
end
for _, queue in ipairs(names) do
    add(call('ZRANGE', P .. 'ready:' .. queue, 0, -1))
end
if is_due then
    add(call('ZRANGE', P .. 'due', 0, -1), unranked)
end
if is_among(states, EXECUTING) then
    add(call('HKEYS', P .. 'executing'))
end
if is_final then
    add(call('ZRANGE', P .. 'finished', 0, -1))
end
return ids
