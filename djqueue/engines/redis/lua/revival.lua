-- Shared by the scripts that let jobs live again which other jobs have stopped. Needs waiting.lua and ends.lua.

local function standing_of(id, rule)
    -- What a dependency on this job or flow comes to as things are now: 'met', 'stops', or nil: it has not ended. What does not exist
    -- any more has been pruned, so it was met.
    local total, failed_at, finished_at = unpack(call('HMGET', P .. 'flow:' .. id, 'total', 'failed_at', 'finished_at'))
    if total then
        local state = rule == 'f' and failed_at and 'failing' or finished_at and (failed_at and 'failed' or 'completed')
        return state and effect_of(state, rule) or nil
    elseif call('EXISTS', P .. 'job:' .. id) == 0 then
        return 'met'
    end
    local state = NAMES[state_of(id)]
    return state and effect_of(state, rule) or nil
end

local function waits_of(id)
    -- What a job has to wait for as things are now; false if something stops it. And how many dependencies were looked at.
    local waits, count = {}, 0
    for upstream, rule in (call('GET', P .. 'up:' .. id) or ''):gmatch('(%d+)(%a),') do
        local standing = standing_of(upstream, rule)
        count = count + 1
        if standing == 'stops' then
            return false, count
        elseif not standing then
            waits[#waits + 1] = upstream
        end
    end
    return waits, count
end

local function was_stopped(run)
    local errors = run[ERRORS] or {}
    local last_error = errors[#errors]
    return type(last_error) == 'table' and last_error[1] == 'DependencyFailed'
end

local function let_live(job, run, waits, at)
    -- Put a finished job back: it waits for these, or is available.
    give_back(job.id, job.state, job.flags)
    if run[ATTEMPT] >= (run[MAX_ATTEMPTS] or job.max_attempts) then
        put(run, MAX_ATTEMPTS, run[ATTEMPT] + 1)
    end
    take_out(job)
    unparked[#unparked + 1] = job.id
    run[FINISHED_AT] = false
    for _, place in ipairs({RESULT, CANCEL_REQUEST, SCHEDULED_AT, EXPIRES_AT}) do
        if run[place] then
            run[place] = false
        end
    end
    if job.scheduled_at then
        put(run, SCHEDULED_AT, 0)
    end
    if job.expires_at then
        put(run, EXPIRES_AT, 0)
    end
    if #waits > 0 then
        run[STATE] = SUSPENDED
        put(run, READY_AT, 0)
        count_waiting(SUSPENDED, job.queue, 1)
        each_part(waits, 7000, function(...) call('SADD', P .. 'waits:' .. job.id, ...) end)
    else
        run[STATE] = AVAILABLE
        put(run, READY_AT, at)
        make_ready_last(job.id, job.queue, (100 - job.priority) * LEVEL)
    end
    keep_run(job.id, run)
end
