-- Mark sleepers on these queues. ARGV: how long the marks last, in milliseconds; the queues.
go_on_when_full()
for place = 2, #ARGV do
    call('SET', P .. 'asleep:' .. ARGV[place], '', 'PX', ARGV[1])
end
