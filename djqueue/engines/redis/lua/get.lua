-- Read one job.
-- ARGV: id. Returns: payload, run, proof of its claim, when it is due; false for each that does not exist. One script, so that a
-- job that is being claimed or finished is seen in exactly one of its states.
local id = ARGV[1]
local payload, run = unpack(call('MGET', P .. 'job:' .. id, P .. 'run:' .. id))
return {payload_of(id, payload), run, call('HGET', P .. 'executing', id), call('ZSCORE', P .. 'due', ranked(id))}
