-- List the queues for which an operator has stored settings.
-- Returns: the hash paused: queue -> a msgpack array of when, by whom and why.
return call('HGETALL', P .. 'paused')
