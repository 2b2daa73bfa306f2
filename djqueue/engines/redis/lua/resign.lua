-- Give up the lead. ARGV: holder.
go_on_when_full()
if call('HGET', P .. 'leader', 'holder') == ARGV[1] then
    call('HSET', P .. 'leader', 'expires_at', 0)
end
