-- Resume a paused queue, and wake the workers that sleep on it. ARGV: queue. Returns: 1 if it was paused.
local was_paused = call('HDEL', P .. 'paused', ARGV[1])
if was_paused == 1 then
    wake(ARGV[1])
end
return was_paused
