-- needs: ends
-- Close an open flow. ARGV: now (empty: the server's clock), its id. Returns: whether it was open; 1 if settle.lua has work.
go_on_when_full()
local at = moment(ARGV[1])
local is_closed = call('HDEL', P .. 'flow:' .. ARGV[2], 'is_open')
if is_closed == 1 then
    count_in(ARGV[2], 'opens', -1)
end
return {is_closed, take_ends(at)}
