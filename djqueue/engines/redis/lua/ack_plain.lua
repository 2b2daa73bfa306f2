-- alone
-- Store outcomes of the common kind: jobs that end without an error and had no run before.
-- ARGV: now (empty: the server's clock); a flat msgpack array of seven for each outcome: id (text), claim, state, started_ago,
-- finished_ago, is_spent, result, as in ack.lua.
-- Returns: the positions, from 1, of those that were not accepted; the positions of those that need ack.lua.
-- This is a separate script without lib.lua because, for a small batch, the functions that it does not call would cost more
-- than its own work.
if redis.replicate_commands then
    redis.replicate_commands() -- Redis 6
end
local P, call, pack, floor = KEYS[1], redis.call, cmsgpack.pack, math.floor
local at = tonumber(ARGV[1])
if not at then
    local time = call('TIME')
    at = time[1] * 1000000 + time[2]
end
local acks = cmsgpack.unpack(ARGV[2])
local count = #acks / 7
local ids = {}
for number = 1, count do
    ids[number] = acks[number * 7 - 6]
end
local proofs = call('HMGET', P .. 'executing', unpack(ids))
local refused, others, seen, released, runs, finished = {}, {}, {}, {}, {}, {}
local run_at, accepted = P .. 'run:', 0
for number = 1, count do
    local place = number * 7 - 6
    local id, _, claim, attempt, attempted_at, worker, flags = ids[number]
    if proofs[number] then
        _, claim, attempt, attempted_at, worker, _, _, flags = cmsgpack.unpack_limit(proofs[number], 7, 1)
    end
    if claim ~= acks[place + 1] or seen[id] then
        refused[#refused + 1] = number
    elseif flags > 0 then
        others[#others + 1] = number
    else
        local started_ago, result = acks[place + 3], acks[place + 6]
        local started_at, finished_at = started_ago and floor(at - started_ago), floor(at - acks[place + 4])
        seen[id] = true
        accepted = accepted + 1
        released[accepted] = id
        if not acks[place + 5] then
            attempt = attempt - 1
        end
        -- A run, as lib.lua describes it: up to finished_at, or the result.
        attempted_at = started_at or attempted_at
        local run = pack(acks[place + 2], attempt, claim, worker, attempted_at, started_at, finished_at)
        runs[2 * accepted - 1] = run_at .. id
        runs[2 * accepted] = result and '\153' .. run .. pack(false, result) or '\151' .. run
        finished[2 * accepted - 1] = finished_at
        finished[2 * accepted] = id
    end
end
if accepted > 0 then
    call('HDEL', P .. 'executing', unpack(released))
    call('MSET', unpack(runs))
    call('ZADD', P .. 'finished', unpack(finished))
end
return {refused, others}
