-- The writes of a script: collected first, then written by flush() in a few commands. The first is one that a server without free
-- memory accepts, and then it accepts the rest: outcomes are stored, all or none.
local released = {}
local sets = {}
local finished = {}
local due = {}
local ready = {}
local last = {}
local waiting = {}
local freed = {}
local holders = {}
local held = {}
local parked, unparked = {}, {}
local ended = {} -- jobs of flows, and jobs that others wait for: {id, state, flags}; see take_ends()

local function keep_run(id, run)
    sets[#sets + 1] = P .. 'run:' .. id
    sets[#sets + 1] = pack(run)
end

local function make_ready(id, queue, score)
    local list = ready[queue]
    if not list then
        list = {}
        ready[queue] = list
    end
    list[#list + 1] = score
    list[#list + 1] = id
end

local function make_ready_last(id, queue, level)
    last[#last + 1] = {id, queue, level}
end

local function count_waiting(state, queue, change)
    local field = state .. '\n' .. queue
    waiting[field] = (waiting[field] or 0) + change
end

local function make_wait(id, queue, state, at)
    due[#due + 1] = at
    due[#due + 1] = ranked(id)
    count_waiting(state, queue, 1)
end

local function free_key(id, key)
    -- Release the unique key of a job that is not live any more; key: false if it has still to be read.
    freed[#freed + 1] = {id, key}
end

local function finish(id, run, flags)
    -- flags: those of the job or of its claim.
    keep_run(id, run)
    finished[#finished + 1] = run[FINISHED_AT]
    finished[#finished + 1] = id
    if has(flags, HAS_KEY) then
        free_key(id, false)
    end
    if flags >= IN_FLOW then
        ended[#ended + 1] = {id, run[STATE], flags}
    end
end

local function park(id, at)
    -- Park a job that was found in an index and cannot be decoded, if it exists: it ends as discarded, with a reason.
    if call('EXISTS', P .. 'job:' .. id) == 1 then
        local run, why = new_run(DISCARDED), 'The stored job cannot be read; it was probably edited by hand.'
        run[FINISHED_AT] = at
        append(run, ERRORS, {'UnreadableJob', 0, at, '', why})
        -- Its own flags cannot be read.
        finish(id, run, call('EXISTS', P .. 'has_flows') == 1 and IN_FLOW + IS_AWAITED or 0)
        parked[id] = why
    end
end

local function note_cancel(run, at)
    local by, reason = unpack(run[CANCEL_REQUEST])
    append(run, ERRORS, {'Cancel', run[ATTEMPT], at, by, reason})
end

local function holder_of(key)
    -- The holders of a unique key: the live job, the job that holds it beyond its life, until when; empty: none, or as long as
    -- it is kept.
    local holder = holders[key]
    if not holder then
        local text = value_at(P .. 'unique:' .. key) or '||'
        if type(text) ~= 'string' then -- a user has stored a list, a set or the like
            error('WRONGTYPE ' .. P .. 'unique:' .. key .. ' does not hold a string. Delete this key, which djqueue did not write.', 0)
        end
        holder = {text:match('^(%d*)|(%d*)|(%d*)$')}
        holders[key] = holder
    end
    return holder
end

local function hold(key, live, beyond, ends_at)
    holders[key] = {live, beyond, ends_at}
    held[key] = true
end

local function begin_follow_up(id, at)
    local _, _, scheduled_at, _, queue, priority = head_of(id)
    if not queue then
        return
    end
    local run = new_run(AVAILABLE)
    count_waiting(SUSPENDED, queue, -1)
    if scheduled_at and scheduled_at > at then
        run[STATE] = SCHEDULED
        put(run, READY_AT, 0)
        make_wait(id, queue, SCHEDULED, scheduled_at)
        if scheduled_at - at <= SOON then
            wake('!stage')
        end
    else
        put(run, READY_AT, at)
        make_ready_last(id, queue, (100 - priority) * LEVEL)
    end
    keep_run(id, run)
end

local function release_keys(at)
    -- Release the keys of jobs that are not live any more, and make the follow-ups available that waited for them.
    local ends = {}
    for _, one in ipairs(freed) do
        ends[one[1]] = true
    end
    for _, one in ipairs(freed) do
        local id, key = one[1], one[2] or select(8, head_of(one[1]))
        if key then
            local holder, follow_up = holder_of(key), holder_of(key .. ':next')[1]
            if follow_up ~= '' and (follow_up == id or holder[1] == id) then
                hold(key .. ':next', '', '', '')
            end
            if holder[1] == id then
                local begins = follow_up ~= '' and not ends[follow_up]
                hold(key, begins and follow_up or '', holder[2], holder[3])
                if begins then
                    begin_follow_up(follow_up, at)
                end
            end
        end
    end
end

local function flush(at)
    -- at: the time used as now. Writes that are collected afterwards need another flush.
    if #freed > 0 then
        release_keys(at)
    end
    local over = {}
    for key in pairs(held) do
        local holder = holders[key]
        if holder[1] == '' and holder[2] == '' then
            over[#over + 1] = P .. 'unique:' .. key
        else
            sets[#sets + 1] = P .. 'unique:' .. key
            sets[#sets + 1] = table.concat(holder, '|')
        end
    end
    each_part(over, 7000, function(...) call('DEL', ...) end)
    each_part(released, 7000, function(...) call('HDEL', P .. 'executing', ...) end)
    each_part(sets, 7000, function(...) call('MSET', ...) end)
    each_part(finished, 7000, function(...) call('ZADD', P .. 'finished', ...) end)
    each_part(due, 7000, function(...) call('ZADD', P .. 'due', ...) end)
    if #last > 0 then
        local place = next_places(#last)
        for number, entry in ipairs(last) do
            make_ready(entry[1], entry[2], entry[3] + place + number - 1)
        end
    end
    for queue, list in pairs(ready) do
        each_part(list, 7000, function(...) call('ZADD', P .. 'ready:' .. queue, ...) end)
        wake(queue)
    end
    for field, change in pairs(waiting) do
        if call('HINCRBY', P .. 'waiting', field, change) <= 0 then
            call('HDEL', P .. 'waiting', field)
        end
    end
    each_part(unparked, 7000, function(...) call('HDEL', P .. 'parked', ...) end)
    for id, why in pairs(parked) do
        call('HSET', P .. 'parked', id, why)
    end
    parked, unparked = {}, {}
    released, sets, finished, due, ready, last, waiting, freed, held = {}, {}, {}, {}, {}, {}, {}, {}, {}
end
