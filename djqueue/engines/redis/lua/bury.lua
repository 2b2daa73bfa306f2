-- Mark workers as dead for ever. They stay known until a later rescue finds nothing of theirs. ARGV: the workers.
go_on_when_full()
for _, worker in ipairs(ARGV) do
    if call('HEXISTS', P .. 'workers', worker) == 1 then
        call('HSETNX', P .. 'dead', worker, text_of(clock()))
    end
end
