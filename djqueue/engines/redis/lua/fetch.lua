-- Claim up to a number of available jobs of one queue for a worker, counting the attempt and raising the claim.
-- ARGV: queue, limit, worker, now (empty: the server's clock).
-- Returns: the time taken for now, ids, payloads, runs (false: nothing has happened to this one yet), in run order. Nothing when the
-- worker is not registered or is dead, or the queue is paused.
-- A claim is the time, or one more than the one before: it grows also when a restart has lost the last second, in which the same id
-- may have been handed out and claimed. Nothing is written but the proofs of the claims; payloads and runs stay as they are.
local queue, worker = ARGV[1], ARGV[3]
if not may_fetch(queue, worker) then
    return {}
end
local found = call('ZPOPMIN', P .. 'ready:' .. queue, ARGV[2])
if #found == 0 then
    return {}
end
local at = moment(ARGV[4])
local ids, jobs_at, runs_at = {}, {}, {}
for place = 1, #found, 2 do
    local id = found[place]
    ids[#ids + 1] = id
    jobs_at[#jobs_at + 1] = P .. 'job:' .. id
    runs_at[#runs_at + 1] = P .. 'run:' .. id
end
local payloads, runs = call('MGET', unpack(jobs_at)), call('MGET', unpack(runs_at))
local proofs = {}
local first_of_all = '\151' .. pack(at, 1, at, worker, queue)
for number, id in ipairs(ids) do
    local payload, run = payloads[number], runs[number]
    -- A payload that is gone was evicted by a server that may forget keys: there is nothing to run.
    if payload then
        local score = tonumber(found[2 * number])
        local flags = payload:byte(2)
        proofs[#proofs + 1] = id
        if run then
            local done = cmsgpack.unpack(run)
            local claim = math.max(at, done[CLAIM] + 1)
            proofs[#proofs + 1] = '\151' .. pack(claim, done[ATTEMPT] + 1, at, worker, queue, score, flags + HAS_RUN)
        else
            proofs[#proofs + 1] = first_of_all .. pack(score, flags)
        end
    end
end
if #proofs > 0 then
    call('HSET', P .. 'executing', unpack(proofs))
end
return {at, ids, payloads, runs}
