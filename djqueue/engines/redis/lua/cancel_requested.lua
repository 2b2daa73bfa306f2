-- Return the cancel requests for these jobs, which are executing.
-- ARGV: a msgpack array of ids (texts), up to 7,000. Returns: id, claim, by, reason of each.
local ids, answer = cmsgpack.unpack(ARGV[1]), {}
for number, text in ipairs(call('HMGET', P .. 'executing', unpack(ids))) do
    if text then
        local claim, _, _, _, _, _, flags = proof(text)
        if has(flags, IS_CANCEL_REQUESTED) then
            local run = read_run(value_at(P .. 'run:' .. ids[number]), EXECUTING)
            local request = run and run[CANCEL_REQUEST] or {'', ''}
            answer[#answer + 1] = {ids[number], claim, request[1], request[2]}
        end
    end
end
return answer
