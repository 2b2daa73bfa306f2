-- List the known workers.
-- Returns: the time, and the hashes workers, beats and dead.
return {clock(), call('HGETALL', P .. 'workers'), call('HGETALL', P .. 'beats'), call('HKEYS', P .. 'dead')}
