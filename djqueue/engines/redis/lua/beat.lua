-- Raise the beat of live workers and read the beats of all.
-- ARGV: msgpack arrays of the live workers, and of those of them that are draining.
-- Returns: worker, beat and whether it is dead, in a flat list, of all known workers; the beats are those before this one.
-- A beat is a counter, not a time: the watching process compares it with its last value, by its own monotonic clock.
go_on_when_full()
local living, draining, dead = {}, {}, {}
for _, worker in ipairs(cmsgpack.unpack(ARGV[1])) do
    living[worker] = true
end
for _, worker in ipairs(cmsgpack.unpack(ARGV[2])) do
    draining[worker] = true
end
for _, worker in ipairs(call('HKEYS', P .. 'dead')) do
    dead[worker] = true
end
local now, beats, answer = clock(), call('HGETALL', P .. 'beats'), {}
for place = 1, #beats, 2 do
    local worker = beats[place]
    local beat = cmsgpack.unpack(beats[place + 1])[1]
    if living[worker] and not dead[worker] then
        call('HSET', P .. 'beats', worker, pack({beat + 1, now, draining[worker] or false}))
    end
    answer[#answer + 1] = worker
    answer[#answer + 1] = beat
    answer[#answer + 1] = dead[worker] and 1 or 0
end
return answer
