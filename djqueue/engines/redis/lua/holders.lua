-- needs: waiting insertion
-- Return the jobs that hold unique keys now, by the same rule as insert_unique.lua.
-- ARGV: now (empty: the server's clock); a msgpack array of keys; a msgpack array of the rule: see insertion.lua.
-- Returns: for each key the holder's id (text), state and inserted_at; nothing for a free key.
local at = moment(ARGV[1])
local window, holds_completed = unpack(cmsgpack.unpack(ARGV[3]), 1, 2)
local answer = {}
for number, key in ipairs(cmsgpack.unpack(ARGV[2])) do
    local live, beyond, ends_at = unpack(holder_of(key))
    local known = live ~= '' and look_at({live})[1]
    answer[number] = {}
    if known and known.state < COMPLETED then
        answer[number] = {live, known.state, known.inserted_at}
    elseif (window or holds_completed) and beyond ~= '' then
        local ended = look_at({beyond})[1]
        if not is_over(ended, ends_at, at, holds_completed) then
            answer[number] = {beyond, ended and ended.state or COMPLETED, ended and ended.inserted_at or at}
        end
    end
end
return answer
