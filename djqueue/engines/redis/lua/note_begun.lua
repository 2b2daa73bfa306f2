-- Record in the proofs of these claims that their functions have been called.
-- ARGV: a flat msgpack array of id (text) and claim, up to 7,000. Returns: the ids of those that were recorded.
go_on_when_full()
local wanted, noted = cmsgpack.unpack(ARGV[1]), {}
for place = 1, #wanted, 2 do
    local id = wanted[place]
    local text = call('HGET', P .. 'executing', id)
    if text then
        local claim, attempt, attempted_at, worker, queue, score, flags = proof(text)
        if claim == wanted[place + 1] then
            if not has(flags, HAS_BEGUN) then
                flags = flags + HAS_BEGUN
                call('HSET', P .. 'executing', id, '\151' .. pack(claim, attempt, attempted_at, worker, queue, score, flags))
            end
            noted[#noted + 1] = id
        end
    end
end
return noted
