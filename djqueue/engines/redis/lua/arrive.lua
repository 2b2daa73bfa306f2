-- alone
-- Skip ids if this is not the server that gave the last ones, because it may not know which ids were given.
-- KEYS[1]: the prefix. Returns: 1 if ids were skipped.
-- A server that syncs its log each second loses the last second in a crash, and a replica that takes over may lack some writes.
-- It would give the ids of those jobs again, while result handles, outboxes and running tasks still refer to the lost jobs. Each
-- such event ends all connections, and each new connection begins with this script, so no id is given in between.
-- The script skips 2^20 ids, more than are given in a lost second, and one for each microsecond of the clock, modulo 2^28 (4.5
-- minutes). The next server may have lost this skip too, and the ids given after it. It begins with the same last id, but skips
-- as many more ids as microseconds have passed, even within the same second, and no server gives a million ids per second. A
-- restart costs 2^27 ids on average, so more than 100,000 restarts fit below 2^44, beyond which positions would overlap with the
-- next priority.
-- Ids can still be given twice
-- - if the skip was lost, and the clock of this server is behind that of the last one (set back, or a replica's own) by more than
--   the time between the two: after as many ids as microseconds are missing;
-- - if the skip was lost, and the two servers started in different periods of 4.5 minutes: then this one may have begun below the
--   other one, by 2^28 ids at most, and reaches its ids after as many jobs; at once,
--   if they started a multiple of 2^28 microseconds apart;
-- - if more than 2^20 ids that were given before the skip were lost, or seq itself: an emptied server begins with 1;
-- - if the server refuses INFO.
-- The DEL comes first because a server whose memory is full refuses a script its first write, unless that can only free memory.
if redis.replicate_commands then
    redis.replicate_commands() -- Redis 6
end
local P = KEYS[1]
local info = redis.pcall('INFO', 'server')
local server = type(info) == 'string' and info:match('run_id:(%w+)')
if not server or redis.call('GET', P .. 'server') == server then
    return 0
end
redis.call('DEL', P .. 'server')
redis.call('SET', P .. 'server', server)
if redis.call('EXISTS', P .. 'seq') == 0 then
    return 0
end
local time = redis.call('TIME')
redis.call('INCRBY', P .. 'seq', 1048576 + (time[1] * 1000000 + time[2]) % 268435456)
return 1
