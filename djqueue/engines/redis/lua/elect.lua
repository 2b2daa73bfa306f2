-- Acquire or renew the lead, by the server's clock.
-- ARGV: holder; how long the lease lasts, in microseconds; a msgpack map of each loop of the leader to the microseconds since it
-- last succeeded; now (empty: the server's clock).
-- Returns: the term, or nothing when another process leads. The term grows with every change of leader.
-- The reports of the loops are stored as times, so that their age grows when the leader stops reporting. The times of the former
-- leader are kept until the new one reports its own; a loop that the new one does not have is removed then.
go_on_when_full()
local at = moment(ARGV[4])
local holder, term, expires_at, loops = unpack(call('HMGET', P .. 'leader', 'holder', 'term', 'expires_at', 'loops'))
if holder and holder ~= ARGV[1] and tonumber(expires_at) >= at then
    return false
end
local told = cmsgpack.unpack(ARGV[3])
loops = not next(told) and loops and cmsgpack.unpack(loops) or {}
for name, ago in pairs(told) do
    loops[name] = at - ago
end
term = tonumber(term or 0)
if holder ~= ARGV[1] then
    term = term + 1
    call('HSET', P .. 'leader', 'holder', ARGV[1], 'term', term, 'elected_at', text_of(at))
end
call('HSET', P .. 'leader', 'expires_at', text_of(at + ARGV[2]), 'loops', pack(loops))
return term
