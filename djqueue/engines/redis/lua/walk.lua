-- Shared by the scripts that search jobs by a filter. Needs waiting.lua.
local function next_ids(after, last, most)
    -- Up to a number of existing ids, above one and up to another, in ascending order.
    local ids, block = {}, math.floor((after + 1) / 32768)
    local names = call('ZRANGEBYSCORE', P .. 'blocks', block, math.floor(last / 32768))
    for _, name in ipairs(names) do
        local base = tonumber(name) * 32768
        local bits = call('GET', P .. 'ids:' .. name) or ''
        local place = math.max(0, math.floor((after + 1 - base) / 8)) + 1
        while #ids < most do
            place = bits:find('[^%z]', place)
            if not place then
                break
            end
            local byte = bits:byte(place)
            for bit = 0, 7 do
                local id = base + (place - 1) * 8 + bit
                if math.floor(byte / 2 ^ (7 - bit)) % 2 == 1 and id > after and id <= last and #ids < most then
                    ids[#ids + 1] = text_of(id)
                end
            end
            place = place + 1
        end
        if #ids == most then
            break
        end
    end
    return ids
end

local function ids_before(before, most)
    -- Up to a number of existing ids below one, in descending order.
    local ids = {}
    local names = call('ZREVRANGEBYSCORE', P .. 'blocks', math.floor((before - 1) / 32768), '-inf')
    for _, name in ipairs(names) do
        local base = tonumber(name) * 32768
        local bits = call('GET', P .. 'ids:' .. name) or ''
        for place = math.min(#bits, math.floor((before - 1 - base) / 8) + 1), 1, -1 do
            local byte = bits:byte(place)
            if byte > 0 then
                for bit = 7, 0, -1 do
                    local id = base + (place - 1) * 8 + bit
                    if math.floor(byte / 2 ^ (7 - bit)) % 2 == 1 and id < before and #ids < most then
                        ids[#ids + 1] = text_of(id)
                    end
                end
                if #ids == most then
                    return ids
                end
            end
        end
    end
    return ids
end

local function filter_of(text, at)
    -- Return a function that checks whether a job matches a filter. text: a msgpack array of states (digits; empty: all), queue,
    -- task, prefix of the task, worker (false: any of them), and the minimum age and the age below which it must be, in
    -- microseconds (false: any): since the insert, or since the end of a finished job; last a part of the task, in lower case.
    local states, queue, task, prefix, worker, older, newer, part = unpack(cmsgpack.unpack(text), 1, 8)
    return function(job)
        local since = job.state >= COMPLETED and job.finished_at or job.inserted_at
        return is_among(states, job.state) and (not queue or job.queue == queue) and (not task or job.task == task)
            and (not prefix or job.task:sub(1, #prefix) == prefix) and (not worker or job.worker == worker)
            and (not older or since <= at - older) and (not newer or since > at - newer)
            and (not part or job.task:lower():find(part, 1, true) ~= nil)
    end
end
