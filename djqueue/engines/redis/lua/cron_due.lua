-- needs: waiting insertion crontab
-- Read the entries that are due or not planned yet.
-- ARGV: now, how many to skip, how many at most. Returns: now, when the next one is due (nil: none), and per entry its id and its
-- hash.
local at = moment(ARGV[1])
local due = call('ZRANGEBYSCORE', P .. 'cron:due', '-inf', text_of(at), 'LIMIT', ARGV[2], ARGV[3])
local coming = call('ZRANGEBYSCORE', P .. 'cron:due', '(' .. text_of(at), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local answer = {text_of(at), coming[2] or false}
for _, id in ipairs(due) do
    answer[#answer + 1] = id
    answer[#answer + 1] = call('HGETALL', entry_key(id))
end
return answer
