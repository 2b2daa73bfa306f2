-- needs: waiting insertion crontab
-- Remove an entry with its history.
-- ARGV: id. Returns: 1; 0 if it is gone.
-- What `cron:ticks` says about its history goes when it is old.
local id = ARGV[1]
local name = call('HGET', entry_key(id), 'name')
if not name then
    return 0
end
call('HDEL', P .. 'cron', name)
call('ZREM', P .. 'cron:due', id)
call('UNLINK', entry_key(id), P .. 'cron:ticks:' .. id)
return 1
