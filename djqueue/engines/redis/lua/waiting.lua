-- Shared by the scripts that read jobs by id and change waiting jobs. Of a payload only the head is read, and of a run only what
-- the change needs, because arguments and results may be large.

local function peek_run(id)
    -- Whether there is a run, and its first seven values; no values if it cannot be decoded.
    local text = redis.pcall('GETRANGE', P .. 'run:' .. id, 0, 255)
    if type(text) ~= 'string' then
        return true -- an error: a list, a set or the like lies there
    elseif text == '' then
        return false
    end
    local first = text:byte(1)
    local function if_sound(is_read, _, state, attempt, claim, ...)
        if is_read and (first == 220 or math.floor(first / 16) == 9) and type(state) == 'number' and state >= SCHEDULED and state <= CANCELLED and type(attempt) == 'number' then
            return state, attempt, claim, ...
        end
    end
    return true, if_sound(pcall(cmsgpack.unpack_limit, text, 7, first == 220 and 3 or 1))
end

local function queue_by_place(id)
    -- The queue in which a job waits that cannot be decoded; empty: none.
    for _, queue in ipairs(call('SMEMBERS', P .. 'queues')) do
        if call('ZSCORE', P .. 'ready:' .. queue, id) then
            return queue
        end
    end
    return ''
end

local function state_by_place(id, queue)
    -- The state of a job whose run cannot be decoded and that neither executes nor is due: the index that it is in tells.
    return call('ZSCORE', P .. 'finished', id) and DISCARDED or call('ZSCORE', P .. 'ready:' .. queue, id) and AVAILABLE or SUSPENDED
end

local function look_at(ids)
    -- What is known of each job, in the order of the ids (texts); false for a missing job.
    if #ids == 0 then
        return {}
    end
    local jobs = {}
    local members = {}
    for number, id in ipairs(ids) do
        members[number] = ranked(id)
    end
    local proofs, due_at = call('HMGET', P .. 'executing', unpack(ids)), call('ZMSCORE', P .. 'due', unpack(members))
    for number, id in ipairs(ids) do
        local job = {id = id, proof = proofs[number]}
        job.flags, job.inserted_at, job.scheduled_at, job.expires_at, job.queue, job.priority, job.max_attempts, job.key, job.task
            = beginning_of(id, 9)
        if not job.flags and call('EXISTS', P .. 'job:' .. id) == 1 then
            job.flags, job.inserted_at, job.queue, job.priority, job.max_attempts, job.task = 0, 0, queue_by_place(id), 0, 1, ''
        end
        if not job.flags then
            job = false
        else
            local has_run, state, attempt, _, worker, _, started_at, finished_at = peek_run(id)
            job.has_run = has_run
            if has_run and not state then
                state = due_at[number] and SCHEDULED or state_by_place(id, job.queue)
                finished_at = state == DISCARDED and 0
            end
            job.attempt, job.worker, job.started_at, job.finished_at = attempt or 0, worker, started_at, finished_at
            job.state = state or due_at[number] and SCHEDULED or AVAILABLE
            if job.proof then
                job.state, _, job.attempt, _, job.worker = EXECUTING, proof(job.proof)
            end
        end
        jobs[number] = job
    end
    return jobs
end

local function run_of(job)
    -- The whole run of a job, to be changed and stored.
    local text = value_at(P .. 'run:' .. job.id)
    return read_run(text, job.state) or new_run(job.state)
end

local function is_among(states, state)
    -- Whether a state is in a text of digits; an empty text includes all.
    return states == '' or states:find(state, 1, true)
end

local function take_out(job)
    -- Remove a job from the index in which it waits, or from the history.
    if job.state == AVAILABLE then
        call('ZREM', P .. 'ready:' .. job.queue, job.id)
    elseif job.state >= COMPLETED then
        call('ZREM', P .. 'finished', job.id)
    else
        count_waiting(job.state, job.queue, -1)
        if job.state ~= SUSPENDED then
            call('ZREM', P .. 'due', ranked(job.id))
        end
    end
end

local function end_waiting(job, state, at, why, request)
    -- End a waiting job. why: the error with the reason; request: its cancel request from now on (nil: unchanged).
    local run = run_of(job)
    run[STATE], run[FINISHED_AT] = state, at
    append(run, ERRORS, {why[1], run[ATTEMPT], at, why[2], why[3]})
    if request then
        put(run, CANCEL_REQUEST, request)
    end
    take_out(job)
    if job.state == SUSPENDED then
        call('UNLINK', P .. 'waits:' .. job.id)
    end
    unparked[#unparked + 1] = job.id
    finish(job.id, run, job.flags)
end

local function ask_to_end(job, request)
    -- Request that an executing job stop. The first request is kept, because it says who asked first.
    local claim, attempt, attempted_at, worker, queue, score, flags = proof(job.proof)
    if not has(flags, IS_CANCEL_REQUESTED) then
        local text = has(flags, HAS_RUN) and value_at(P .. 'run:' .. job.id)
        local run = read_run(text, AVAILABLE) or new_run(AVAILABLE)
        put(run, CANCEL_REQUEST, request)
        keep_run(job.id, run)
        flags = flags + IS_CANCEL_REQUESTED + (has(flags, HAS_RUN) and 0 or HAS_RUN)
        call('HSET', P .. 'executing', job.id, '\151' .. pack(claim, attempt, attempted_at, worker, queue, score, flags))
    end
    call('PUBLISH', P .. 'wake', 'cancel:' .. job.id)
end

local function cancel_jobs(jobs, at, by, why, only)
    -- Cancel live jobs: waiting ones end at once, executing ones get a cancel request. Returns a digit for each: whether it was
    -- done.
    local done, request = {}, {by, why, at}
    for number, job in ipairs(jobs) do
        local is_done = job and job.state < COMPLETED and is_among(only, job.state)
        if is_done then
            if job.state == EXECUTING then
                ask_to_end(job, request)
            else
                end_waiting(job, CANCELLED, at, {'Cancel', by, why}, request)
            end
        end
        done[number] = is_done and 1 or 0
    end
    return table.concat(done)
end

local function states_of(jobs)
    -- A digit for each job: its state, 0 for a missing job.
    local states = {}
    for number, job in ipairs(jobs) do
        states[number] = job and job.state or 0
    end
    return table.concat(states)
end

local function once(ids)
    -- The ids without repetitions.
    local seen, list = {}, {}
    for _, id in ipairs(ids) do
        if not seen[id] then
            seen[id] = true
            list[#list + 1] = id
        end
    end
    return list
end

local function forget(ids)
    -- Remove all remaining data of jobs that are in no index any more.
    local keys, blocks = {}, {}
    for _, id in ipairs(ids) do
        keys[#keys + 1] = P .. 'job:' .. id
        keys[#keys + 1] = P .. 'run:' .. id
        local number = tonumber(id)
        local block = math.floor(number / 32768)
        call('SETBIT', P .. 'ids:' .. text_of(block), number - block * 32768, 0)
        blocks[block] = true
    end
    each_part(keys, 7000, function(...) call('UNLINK', ...) end)
    each_part(ids, 7000, function(...) call('HDEL', P .. 'parked', ...) end)
    for block in pairs(blocks) do
        local name = text_of(block)
        if call('BITCOUNT', P .. 'ids:' .. name) == 0 then
            call('DEL', P .. 'ids:' .. name)
            call('ZREM', P .. 'blocks', name)
        end
    end
end
