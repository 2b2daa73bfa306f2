-- Record which entries a scheduler's code declares, and read the declarations of all schedulers.
-- ARGV: now, id, name, entries (opaque), for how long a declaration is kept, in microseconds.
-- Returns: now, and per scheduler its id, name, entries, and the times of its first and last declaration.
go_on_when_full()
local at, key = moment(ARGV[1]), P .. 'schedulers'
local before = call('HGET', key, ARGV[2])
local started_at = before and cmsgpack.unpack(before)[3] or text_of(at)
call('HSET', key, ARGV[2], pack({ARGV[3], ARGV[4], started_at, text_of(at)}))
local all, answer = call('HGETALL', key), {text_of(at)}
for place = 1, #all, 2 do
    local name, entries, started, declared = unpack(cmsgpack.unpack(all[place + 1]))
    if tonumber(declared) < at - tonumber(ARGV[5]) then
        call('HDEL', key, all[place])
    else
        for _, value in ipairs({all[place], name, entries, started, declared}) do
            answer[#answer + 1] = value
        end
    end
end
return answer
