-- needs: waiting insertion crontab
-- Read the history of an entry, newest first. ARGV: id, how many. Returns: lines of msgpack.
return call('ZREVRANGE', P .. 'cron:ticks:' .. ARGV[1], 0, tonumber(ARGV[2]) - 1)
