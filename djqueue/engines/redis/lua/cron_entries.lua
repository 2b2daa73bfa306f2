-- needs: waiting insertion crontab
-- Read entries of the crontab.
-- ARGV: names. Returns: per existing name, the entry's id and its hash.
local answer = {}
for _, name in ipairs(ARGV) do
    local id = call('HGET', P .. 'cron', name)
    if id then
        answer[#answer + 1] = id
        answer[#answer + 1] = call('HGETALL', entry_key(id))
    end
end
return answer
