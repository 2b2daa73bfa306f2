-- needs: waiting insertion crontab
-- Delete old ticks.
-- ARGV: now, age in microseconds, how many to examine. Returns: how many were examined, and how many were deleted: those of an
-- entry that was removed are deleted already.
-- No time runs again without its tick: last_nominal_at stays on the entry.
local before = text_of(moment(ARGV[1]) - tonumber(ARGV[2]))
local old = call('ZRANGEBYSCORE', P .. 'cron:ticks', '-inf', '(' .. before, 'LIMIT', 0, ARGV[3])
local gone = 0
for _, member in ipairs(old) do
    local id, tick = member:match('^(%d+):(%d+)$')
    gone = gone + call('ZREMRANGEBYSCORE', P .. 'cron:ticks:' .. id, tick, tick)
end
if #old > 0 then
    call('ZREM', P .. 'cron:ticks', unpack(old))
end
return {#old, gone}
