-- Say which of these queues have something to fetch: one script for a worker that serves many. ARGV: the queues, up to 1,000.
-- Returns: their places among the arguments, from 1. A paused one is left out.
-- How many of some keys exist is one command: what is empty is not asked queue by queue, but half by half.
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
