-- Shared by the scripts that insert jobs which may have a unique key. Needs waiting.lua.
-- A job is nine values, see insert.lua. A rule: window in microseconds (false: none), whether a completed job holds its key, and
-- whether a duplicate replaces, reschedules and gets a follow-up; see UniqueRule.
local fresh = {} -- by id: what this script has collected about a job is not written yet
local new_in = {}
local is_soon = false

local function settle(at)
    -- Write what is collected, including the indexes of new jobs.
    flush(at)
    fresh = {}
    for queue in pairs(new_in) do
        call('SADD', P .. 'queues', queue)
    end
    if is_soon then
        wake('!stage')
    end
    new_in, is_soon = {}, false
end

local function look_at_one(id, at)
    if fresh[id] then
        settle(at)
    end
    return look_at({id})[1]
end

local function due_at_of(job, at)
    return job[5] or job[6] and job[6] > 0 and at + job[6] or nil
end

local function ends_at_of(job, at)
    return job[7] or job[8] and at + job[8] or nil
end

local function note_due(due_at, at)
    is_soon = is_soon or due_at - at <= SOON
end

local function store(id, order, job, at, is_follow_up)
    -- Store a job; returns its state.
    local text, queue, due_at = text_of(id), job[3], due_at_of(job, at)
    sets[#sets + 1] = P .. 'job:' .. text
    sets[#sets + 1] = '\155' .. pack(job[9] and HAS_KEY or 0, at, due_at, ends_at_of(job, at)) .. job[1] .. job[2]
    mark_id(id, 1)
    fresh[text], new_in[queue] = true, true
    if is_follow_up then
        local run = new_run(SUSPENDED)
        put(run, READY_AT, 0)
        keep_run(text, run)
        count_waiting(SUSPENDED, queue, 1)
        return SUSPENDED
    elseif due_at and due_at > at then
        make_wait(text, queue, SCHEDULED, due_at)
        note_due(due_at, at)
        return SCHEDULED
    end
    make_ready(text, queue, (100 - job[4]) * LEVEL + order)
    return AVAILABLE
end

local function quote_end(text, place)
    -- The position of the quote that ends a string, which has begun before this position.
    while true do
        local found = text:find('["\\]', place)
        if text:byte(found) == 34 then
            return found
        end
        place = found + 2
    end
end

local function each_member(text, act)
    -- Iterate over the members of a JSON object as texts: a name with its quotes, and its value. cjson would change numbers and
    -- could not tell {} from [].
    local place = text:find('"', 1, true)
    while place do
        local name_ends = quote_end(text, place + 1)
        local from = text:find(':', name_ends, true) + 1
        local depth, to = 0, from
        while true do
            to = text:find('["{}%[%],]', to)
            local sign = text:sub(to, to)
            if sign == '"' then
                to = quote_end(text, to + 1)
            elseif sign == '{' or sign == '[' then
                depth = depth + 1
            elseif depth == 0 then
                break
            elseif sign ~= ',' then
                depth = depth - 1
            end
            to = to + 1
        end
        act(text:sub(place, name_ends), text:sub(from, to - 1))
        place = text:sub(to, to) == ',' and text:find('"', to, true)
    end
end

local function merged(before, after)
    -- Merge two JSON objects; for a member that both have, the second one's value is used.
    if after == '{}' or after == before then
        return before
    elseif before == '{}' then
        return after
    end
    local names, values = {}, {}
    for _, text in ipairs({before, after}) do
        each_member(text, function(name, value)
            if not values[name] then
                names[#names + 1] = name
            end
            values[name] = value
        end)
    end
    local parts = {}
    for number, name in ipairs(names) do
        parts[number] = name .. ':' .. values[name]
    end
    return '{' .. table.concat(parts, ',') .. '}'
end

local function revise(job, new, rule, at)
    -- Apply a duplicate to a waiting job: the newest values, a new time, or both. A follow-up takes the newest time with the newest
    -- values. A job whose values are replaced keeps its time, unless the new values may not run before a later time. A job that
    -- stays available keeps its position in the queue; one that failed before stays retryable until it is due. It always has
    -- room for at least one more attempt. The notes in its meta are kept.
    local replaces, reschedules = rule[3] or job.state == SUSPENDED, rule[4] or job.state == SUSPENDED
    local payload = call('GET', P .. 'job:' .. job.id)
    local rest, flags, inserted_at, scheduled_at, expires_at, queue, priority, max_attempts, key, task, meta
        = cmsgpack.unpack_limit(payload, 10, 1)
    local arguments, run, is_newly_ready = payload:sub(rest + 1), run_of(job), false
    local due_at = due_at_of(new, at)
    if replaces and due_at and due_at > math.max(at, run[SCHEDULED_AT] or scheduled_at or 0) then
        reschedules = true
    end
    local function forget_change(place)
        if run[place] then
            run[place] = false
        end
    end
    if replaces then
        local most, new_meta = select(4, cmsgpack.unpack_limit(new[1], 6)), select(7, cmsgpack.unpack_limit(new[1], 6))
        for _, note in ipairs(run[NOTES] or {}) do
            meta = merged(meta, note)
        end
        meta, arguments = merged(meta, new_meta), new[2]
        priority, max_attempts, expires_at = new[4], math.max(most, run[ATTEMPT] + 1), ends_at_of(new, at)
        forget_change(NOTES)
        forget_change(MAX_ATTEMPTS)
        forget_change(EXPIRES_AT)
    end
    if reschedules then
        scheduled_at = due_at
        forget_change(SCHEDULED_AT)
    end
    if reschedules and job.state ~= SUSPENDED then
        if scheduled_at and scheduled_at > at then
            take_out(job)
            job.state = job.state == RETRYABLE and RETRYABLE or SCHEDULED
            make_wait(job.id, queue, job.state, scheduled_at)
            put(run, READY_AT, 0)
            note_due(scheduled_at, at)
        elseif job.state ~= AVAILABLE then
            take_out(job)
            job.state, is_newly_ready = AVAILABLE, true
            make_ready_last(job.id, queue, (100 - priority) * LEVEL)
            put(run, READY_AT, at)
        end
        run[STATE] = job.state
    end
    if job.state == AVAILABLE and not is_newly_ready and priority ~= job.priority then
        local order = tonumber(call('ZSCORE', P .. 'ready:' .. queue, job.id)) % LEVEL
        call('ZADD', P .. 'ready:' .. queue, (100 - priority) * LEVEL + order, job.id)
    end
    sets[#sets + 1] = P .. 'job:' .. job.id
    -- The first byte is the length of the list, to which a newer version may have added values behind the arguments. They belong to
    -- the old arguments.
    sets[#sets + 1] = (replaces and '\155' or payload:sub(1, 1))
        .. pack(flags, inserted_at, scheduled_at, expires_at, queue, priority, max_attempts, key, task, meta) .. arguments
    if job.has_run or is_newly_ready then
        keep_run(job.id, run)
    end
    fresh[job.id] = true
end

local function is_over(job, ends_at, at, holds_completed)
    -- Whether the hold of a job beyond its life has ended. A job that is not kept (false) held its key until then, or as long as
    -- it was.
    if ends_at ~= '' and tonumber(ends_at) <= at then
        return not job or job.state >= COMPLETED
    elseif not job then
        return ends_at == ''
    end
    return job.state == CANCELLED and not job.started_at or holds_completed and job.state > COMPLETED
end

local function insert_job(job, id, order, at, rule)
    -- Store a job, or find the holder of its key. Returns id (text), state, inserted_at, whether it is a duplicate.
    local key, text = job[9], text_of(id)
    if not key then
        return text, store(id, order, job, at), at, false
    end
    local window, holds_completed, replaces, reschedules, follows_up = unpack(rule, 1, 5)
    if follows_up then
        -- The follow-up first, so that the newest values run last, even if the holder ends meanwhile.
        local waits = holder_of(key .. ':next')[1]
        local known = waits ~= '' and look_at_one(waits, at)
        if known then
            revise(known, job, rule, at)
            return waits, known.state, known.inserted_at, true
        end
    end
    local live, beyond, ends_at = unpack(holder_of(key))
    local known = live ~= '' and look_at_one(live, at)
    if known and known.state < COMPLETED then
        if known.state == EXECUTING and follows_up then
            hold(key .. ':next', text, '', '')
            return text, store(id, order, job, at, true), at, false
        elseif known.state ~= EXECUTING and (replaces or reschedules) then
            revise(known, job, rule, at)
        end
        return live, known.state, known.inserted_at, true
    end
    if window or holds_completed then
        if beyond ~= '' then
            local ended = look_at_one(beyond, at)
            if not is_over(ended, ends_at, at, holds_completed) then
                return beyond, ended and ended.state or COMPLETED, ended and ended.inserted_at or at, true
            end
        end
        -- holds: keys by the end of their hold; holds:kept: keys without an end, by the job that holds them.
        beyond, ends_at = text, window and text_of(at + window) or ''
        call('ZREM', P .. (window and 'holds:kept' or 'holds'), key)
        call('ZADD', P .. (window and 'holds' or 'holds:kept'), window and ends_at or text, key)
    end
    hold(key, text, beyond, ends_at)
    return text, store(id, order, job, at), at, false
end
