-- needs: ends
-- Make scheduled and retryable jobs available that are due, the longest due first.
-- ARGV: limit (up to 1,000), now (empty: the server's clock).
-- The jobs of one run become available at the same time and run in id order.
-- Returns: count, the microseconds until the next one is due (0 or less while due jobs remain; false: none), and the queues
-- that got jobs.
local at = moment(ARGV[2])
local found = call('ZRANGEBYSCORE', P .. 'due', '-inf', text_of(at), 'LIMIT', 0, ARGV[1])
local queues, names = {}, {}
if #found > 0 then
    table.sort(found)
    local runs_at = {}
    for number, member in ipairs(found) do
        runs_at[number] = P .. 'run:' .. unranked(member)
    end
    local runs = call('MGET', unpack(runs_at))
    for number, member in ipairs(found) do
        local _, _, _, _, queue, priority = head_of(unranked(member))
        local run = read_run(runs[number], SCHEDULED)
        if not (queue and run) then
            park(unranked(member), at)
        else
            count_waiting(run[STATE], queue, -1)
            run[STATE] = AVAILABLE
            put(run, READY_AT, at)
            keep_run(unranked(member), run)
            make_ready_last(unranked(member), queue, (100 - priority) * LEVEL)
            if not queues[queue] then
                queues[queue] = true
                names[#names + 1] = queue
            end
        end
    end
    call('ZREM', P .. 'due', unpack(found))
    flush(at)
    if #ended > 0 then
        take_ends(at)
    end
end
local next_one = call('ZRANGE', P .. 'due', 0, 0, 'WITHSCORES')[2]
return {#found, next_one and tonumber(next_one) - at or false, names}
