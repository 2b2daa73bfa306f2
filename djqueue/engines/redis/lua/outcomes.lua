-- Shared by ack.lua and ack_flow.lua.
local function store_outcomes(at, acks, takes_flows)
    -- Returns: the positions of the outcomes that were not accepted; the positions of those of jobs of flows, and of jobs that others
    -- wait for, unless it takes them.
    -- A job that is handed back (available, not spent) keeps its position in the queue. A waiting state without a delay becomes
    -- available at once, without the stager. A job with a cancel request is cancelled instead of put back.
    -- A job that started and was interrupted gets its attempt back three times. After that, each interruption spends an attempt:
    -- a job that always outlasts its worker would otherwise start for ever. The last attempt is never spent this way: the worker
    -- discards the job.
    local count = #acks / 10
    local ids = {}
    for number = 1, count do
        ids[number] = acks[number * 10 - 9]
    end
    local proofs = call('HMGET', P .. 'executing', unpack(ids))
    local refused, others, seen, soon = {}, {}, {}, false
    local floor = math.floor

    local function run_of(id, flags)
        local text = has(flags, HAS_RUN) and value_at(P .. 'run:' .. id)
        return text and read_run(text) or {}
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
        elseif flags >= IN_FLOW and not takes_flows then
            others[#others + 1] = number
        else
            seen[id] = true
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
            if run[NOTES] then
                unparked[#unparked + 1] = id
            end
            if fault then
                append_error(run, dated(fault, is_over and floor(at - acks[place + 4]) or at))
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
                    parked[id] = note
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
    end
    flush(at)
    if soon then
        wake('!stage')
    end
    return refused, others
end
