-- Store the outcomes of claims: finish jobs, or put them back to be retried, snoozed or handed back.
-- ARGV: now (empty: the server's clock); a flat msgpack array of ten for each outcome: id (text), claim, state, started_ago and
-- finished_ago (microseconds back from this write; started_ago false: the function never began), is_spent (false gives the attempt
-- back), result, error, delay (microseconds until due, for the states that wait), note (false: none).
-- Returns: the places, from 1, of those that were not accepted: the job executes no more, or under another claim. It was rescued or
-- handed back, and belongs to somebody else.
-- A job handed back (available, not spent) keeps its place in the queue. A state that waits, with no time to wait, is available at
-- once: no stager has to come by. A job that somebody wants cancelled is cancelled instead of put back.
-- What began and was interrupted is given back with its attempt three times; from then on an interruption spends one, or a job
-- that never ends before its worker does would start for ever. The last attempt is never taken this way.
local at = moment(ARGV[1])
local acks = cmsgpack.unpack(ARGV[2])
local count = #acks / 10
local ids = {}
for number = 1, count do
    ids[number] = acks[number * 10 - 9]
end
local proofs = call('HMGET', P .. 'executing', unpack(ids))
local refused, others, seen, soon = {}, {}, {}, false
local floor, run_at, accepted = math.floor, P .. 'run:', 0

local function run_of(id, flags)
    local text = has(flags, HAS_RUN) and call('GET', P .. 'run:' .. id)
    return text and cmsgpack.unpack(text) or {}
end

local function is_interrupted_too_often(id, run, attempt)
    if (run[INTERRUPTED] or 0) < 3 then
        return false
    end
    return attempt < (run[MAX_ATTEMPTS] or select(7, head_of(id)) or 0)
end

for number = 1, count do
    local place = number * 10 - 9
    local id = ids[number]
    local claim, attempt, attempted_at, worker, queue, score, flags
    if proofs[number] then
        claim, attempt, attempted_at, worker, queue, score, flags = proof(proofs[number])
    end
    if claim ~= acks[place + 1] or seen[id] then
        refused[#refused + 1] = number
    elseif acks[place + 2] >= COMPLETED and flags < HAS_RUN and not acks[place + 7] then
        -- Almost all: what ends without an error and had nothing happen to it before. Its run is written down at once.
        local started_ago, result = acks[place + 3], acks[place + 6]
        local started_at, finished_at = started_ago and floor(at - started_ago), floor(at - acks[place + 4])
        seen[id] = true
        accepted = accepted + 1
        released[accepted] = id
        sets[2 * accepted - 1] = run_at .. id
        if not acks[place + 5] then
            attempt = attempt - 1
        end
        attempted_at = started_at or attempted_at
        if result then
            sets[2 * accepted] = '\153'
                .. pack(acks[place + 2], attempt, claim, worker, attempted_at, started_at, finished_at, false, result)
        else
            sets[2 * accepted] = '\151' .. pack(acks[place + 2], attempt, claim, worker, attempted_at, started_at, finished_at)
        end
        finished[2 * accepted - 1] = finished_at
        finished[2 * accepted] = id
        if flags == HAS_KEY then
            free_key(id, false)
        end
    else
        seen[id] = true
        others[#others + 1] = number
    end
end

for _, number in ipairs(others) do
    local place = number * 10 - 9
    local id = ids[number]
    local claim, attempt, attempted_at, worker, queue, score, flags = proof(proofs[number])
    released[#released + 1] = id
    local state, started_ago, is_spent = acks[place + 2], acks[place + 3], acks[place + 5]
    local result, fault = acks[place + 6], acks[place + 7]
    local started_at = started_ago and floor(at - started_ago)
    local run = run_of(id, flags)
    local is_interrupted = not is_spent and started_at and state == AVAILABLE
    local is_over = state >= COMPLETED
    if not is_over and has(flags, IS_CANCEL_REQUESTED) then
        state, is_over, result = CANCELLED, true, false
        is_interrupted = false
    end
    if not is_spent and not (is_interrupted and is_interrupted_too_often(id, run, attempt)) then
        attempt = attempt - 1
    end
    run[STATE], run[ATTEMPT], run[CLAIM], run[WORKER] = state, attempt, claim, worker
    run[ATTEMPTED_AT] = is_over and started_at or attempted_at
    run[STARTED_AT] = run[STARTED_AT] or started_at
    run[FINISHED_AT] = false
    if fault then
        append(run, ERRORS, fault)
    end
    if is_over then
        run[FINISHED_AT] = floor(at - acks[place + 4])
        if result then
            put(run, RESULT, result)
        end
        if acks[place + 2] < COMPLETED then
            note_cancel(run, at)
        end
        finish(id, run, flags)
    else
        local delay, note = acks[place + 8], acks[place + 9]
        if note then
            append(run, NOTES, note)
        elseif state == SCHEDULED then
            put(run, SNOOZED, (run[SNOOZED] or 0) + 1)
        elseif is_interrupted then
            put(run, INTERRUPTED, (run[INTERRUPTED] or 0) + 1)
        end
        if delay > 0 then
            put(run, READY_AT, 0)
            put(run, SCHEDULED_AT, at + delay)
            make_wait(id, queue, state, at + delay)
        else
            run[STATE] = AVAILABLE
            if state == AVAILABLE and not is_spent then
                make_ready(id, queue, score)
            else
                put(run, READY_AT, at)
                make_ready_last(id, queue, score - score % LEVEL)
            end
        end
        soon = soon or delay > 0 and delay <= SOON
        keep_run(id, run)
    end
end
flush(at)
if soon then
    wake('!stage')
end
return refused
