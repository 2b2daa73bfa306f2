-- Return which of these queues have jobs to fetch, in one script for a worker that serves many. ARGV: the queues, up to 1,000.
-- Returns: their positions among the arguments, from 1. Paused queues are left out.
-- One EXISTS counts many keys, so empty queues are ruled out half by half instead of one by one.
local paused = call('HMGET', P .. 'paused', unpack(ARGV))
local places, keys, found = {}, {}, {}
for place, queue in ipairs(ARGV) do
    if not paused[place] then
        places[#places + 1] = place
        keys[#keys + 1] = P .. 'ready:' .. queue
    end
end
local function search(first, last)
    local count = first <= last and call('EXISTS', unpack(keys, first, last)) or 0
    if count == last - first + 1 then
        for number = first, last do
            found[#found + 1] = places[number]
        end
    elseif count > 0 then
        local middle = math.floor((first + last) / 2)
        search(first, middle)
        search(middle + 1, last)
    end
end
search(1, #keys)
return found
