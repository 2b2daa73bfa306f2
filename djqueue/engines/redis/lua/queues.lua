-- List the queues about which somebody decided something.
-- Returns: the hash paused: queue -> a msgpack array of when, by whom and why.
return call('HGETALL', P .. 'paused')
