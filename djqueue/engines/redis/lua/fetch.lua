-- Claim up to a number of available jobs of one queue for a worker, counting the attempt and raising the claim.
-- ARGV: queue, limit (up to 1,000), worker, now (empty: the server's clock).
-- Returns: the time used as now, ids, payloads, and runs if there are any (false: this job has none yet), in run order; with jobs of
-- flows, runs and the ids of their flows (false: none). Nothing when the worker is not registered or is dead, or the queue is paused.
-- A claim is the time, or one more than the previous claim. So it grows also when a restart has lost the last second, in which the
-- same id may have been given and claimed. Jobs that cannot be decoded are claimed too: the fetcher parks them (park.lua). Only the
-- proofs of the claims are written; payloads and runs stay as they are.
local queue, worker = ARGV[1], ARGV[3]
if not may_fetch(queue, worker) then
    return {}
end
local ids, scores, payloads, runs = pop(queue, ARGV[2])
local count = #ids
if count == 0 then
    return {}
end
local at = moment(ARGV[4])
local proofs, place, any_run, flows = {}, 0, false, nil
-- The common part of the proofs of jobs without a run.
local first_proof = '\151' .. pack(at, 1, at, worker, queue)
for number = 1, count do
    local payload, done = payloads[number], runs[number]
    -- A missing payload was evicted by a server that may evict keys: there is no job to run.
    if payload then
        local score, flags = scores[number], payload:byte(2) or 0
        if flags > HAS_KEY then
            flows = flows or {}
            flows[number] = has(flags, IN_FLOW) and flow_of(ids[number]) or nil
            flags = flags % 2 + (has(flags, IN_FLOW) and IN_FLOW or 0) + (has(flags, IS_AWAITED) and IS_AWAITED or 0)
        end
        proofs[place + 1] = ids[number]
        if done then
            any_run = true
            done = read_run(done) or new_run(AVAILABLE)
            local claim = math.max(at, done[CLAIM] + 1)
            proofs[place + 2] = '\151' .. pack(claim, done[ATTEMPT] + 1, at, worker, queue, score, flags + HAS_RUN)
        else
            proofs[place + 2] = first_proof .. string.char(160 + #score) .. score .. string.char(flags)
        end
        place = place + 2
    end
end
if place > 0 then
    call('HSET', P .. 'executing', unpack(proofs))
end
if flows then
    for number = 1, count do
        flows[number] = flows[number] or false
        runs[number] = runs[number] or false
    end
    return {at, ids, payloads, runs, flows}
end
return any_run and {at, ids, payloads, runs} or {at, ids, payloads}
