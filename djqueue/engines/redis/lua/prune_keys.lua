-- needs: waiting
-- Delete unique keys whose hold beyond the life of a job has ended.
-- ARGV: now, how many expired holds to examine, how many of those without an end, and after which job.
-- Returns: how many expired holds were deleted; how many without an end were examined and deleted, and at which job to continue.
-- A hold without an end is deleted when its job is not kept, or is kept but not completed. The oldest jobs are examined, because
-- they are the first to be deleted from the history. A live job does not need such a hold: it holds the key by itself.
local at = moment(ARGV[1])
local removed = 0

local function let_go(key, zset)
    hold(key, holder_of(key)[1], '', '')
    call('ZREM', P .. zset, key)
    removed = removed + 1
end

for _, key in ipairs(call('ZRANGEBYSCORE', P .. 'holds', '-inf', text_of(at), 'LIMIT', 0, ARGV[2])) do
    let_go(key, 'holds')
end
local expired, last = removed, ARGV[4]
local found = call('ZRANGEBYSCORE', P .. 'holds:kept', '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
for place = 1, #found, 2 do
    last = found[place + 1]
    local job = look_at({last})[1]
    if not job or job.state > COMPLETED then
        let_go(found[place], 'holds:kept')
    end
end
flush(at)
return {expired, #found / 2, removed - expired, last}
