-- alone
-- Skip a million ids if this is not the server that gave the last ones: it may have forgotten which.
-- KEYS[1]: the prefix. Returns: 1 if ids were skipped.
-- A server that syncs its log each second loses the last one in a crash, and a replica that takes over may lack some. The ids of those
-- jobs would be given again, to other jobs than those that result handles, outboxes and running tasks mean by them. Each of these
-- events ends all connections, and each new one begins with this script, so nobody draws an id in between.
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
redis.call('INCRBY', P .. 'seq', 1048576)
return 1
