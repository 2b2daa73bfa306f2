-- Let a paused queue go on, and wake who sleeps on it. ARGV: queue. Returns: 1 if it was paused.
local was_paused = call('HDEL', P .. 'paused', ARGV[1])
if was_paused == 1 then
    wake(ARGV[1])
end
return was_paused
