-- Mark workers as dead permanently, except those that have beaten since they were seen. They stay known until a later rescue
-- finds no jobs of theirs.
-- ARGV: worker and the beat with which it was seen (empty: any), in a flat list. Returns: the workers that are spared.
go_on_when_full()
local spared = {}
for place = 1, #ARGV, 2 do
    local worker, seen = ARGV[place], ARGV[place + 1]
    if call('HEXISTS', P .. 'workers', worker) == 1 then
        local beat = call('HGET', P .. 'beats', worker)
        if seen == '' or not beat or cmsgpack.unpack(beat)[1] == tonumber(seen) then
            call('HSETNX', P .. 'dead', worker, text_of(clock()))
        elseif call('HEXISTS', P .. 'dead', worker) == 0 then
            spared[#spared + 1] = worker
        end
    end
end
return spared
