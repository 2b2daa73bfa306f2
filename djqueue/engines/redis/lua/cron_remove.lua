-- needs: waiting insertion crontab
-- Remove an entry with its history.
-- ARGV: id. Returns: 1; 0 if there is no such entry.
-- Its members of `cron:ticks` are removed by cron_prune.lua when they are old.
local id = ARGV[1]
local name = call('HGET', entry_key(id), 'name')
if not name then
    return 0
end
call('HDEL', P .. 'cron', name)
call('ZREM', P .. 'cron:due', id)
call('UNLINK', entry_key(id), P .. 'cron:ticks:' .. id)
return 1
