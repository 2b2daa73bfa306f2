-- Read the next flows that are no parts, newest first: one page of a scan.
-- ARGV: the id to start below (empty: all), how many to look at, kind, name, whether they have finished (empty for each: any; a name: =
-- and the name).
-- Returns: the id to go on below (empty: the scan is complete), and for each the id and a flat list of its fields.
local from = ARGV[1] == '' and '+inf' or '(' .. ARGV[1]
local ids, found = call('ZREVRANGEBYSCORE', P .. 'flows', from, '-inf', 'LIMIT', 0, ARGV[2]), {}
for _, id in ipairs(ids) do
    local kind, name, finished_at = unpack(call('HMGET', P .. 'flow:' .. id, 'kind', 'name', 'finished_at'))
    if kind and (ARGV[3] == '' or kind == ARGV[3]) and (ARGV[4] == '' or '=' .. name == ARGV[4])
        and (ARGV[5] == '' or ARGV[5] == (finished_at and '1' or '0')) then
        found[#found + 1] = {id, call('HGETALL', P .. 'flow:' .. id)}
    end
end
return {#ids == tonumber(ARGV[2]) and ids[#ids] or '', found}
