-- Shared by scripts that read; writing.lua has what scripts share that write. A script includes what it uses of both.
-- KEYS[1] is the prefix of all keys, "{name}:". Its hash tag puts all keys in one slot, so a script may build the others from it.
--
-- job:<id>      what was enqueued, written once: a msgpack array of flags, inserted_at, scheduled_at, expires_at, queue, priority,
--               max_attempts, unique key, task, meta, [args, kwargs]. JSON texts are opaque here: cjson would change them.
-- run:<id>      what has changed since, see STATE and the names after it. Absent for a job that was not claimed or changed yet.
-- executing     hash: id -> the proof of a claim: claim, attempt, attempted_at, worker, queue, score, flags.
-- ready:<queue> sorted set: available jobs, by score = (100 - priority) * 2^44 + position in the order of becoming available.
-- due           sorted set: scheduled and retryable jobs by the time at which they are due; see ranked().
-- finished      sorted set: finished jobs, by the time at which they finished.
-- waiting       hash: "state\nqueue" -> how many jobs are scheduled, retryable, suspended.
-- ids:<block>   bitmap: which ids exist, or were taken to run at most once, 2^15 to a block. blocks: sorted set of the
--               existing blocks. seq: the last id, and the last position in the order. server: which gave it, see arrive.lua.
-- unique:<key>  "live|beyond|until": the live job that holds the key, the job that holds it beyond its life, and until when (empty:
--               for as long as it is kept). A follow-up holds <key>:next while it waits, and is suspended.
-- parked        hash: id -> why no worker can run this job as it stands.
-- For workflows and batches (flows), see ends.lua: flow:<id> hash; members:<id> sorted set of the spans of ids of its jobs and its
-- parts', "first-last|flow", by the first; spans: the same of all flows; flows: sorted set of the ids of those that are no parts; empty:
-- finished ones without jobs, by when they finished;
-- flowkey:<key> the unfinished flow that holds a unique key. down:<id> who waits or waited for a job or a flow, "id rule," each, in
-- the order of their ids; up:<id> what a job waits or waited for, in this form; waits:<id> set: what a suspended job still waits for.
-- effects       list: "id|state|from|to": ends that have not had all of their effect on those in this range of down:<id>; see
--               settle.lua. has_flows: set with the first flow or dependency.
-- queues        set: the names that were ever used. paused, workers, dead, beats: hashes. asleep:<name>: a sleeper's mark.
--
-- Times are whole microseconds since the epoch. Never use ".." or tostring() on numbers of more than 14 digits: they are rounded.

if redis.replicate_commands then
    redis.replicate_commands() -- Redis 6: replicate what was written, for the scripts read the clock
end

local P = KEYS[1]
local call, pack = redis.call, cmsgpack.pack
local LEVEL = 17592186044416 -- 2^44
local HEAD_BYTES = 2047 -- of a payload: a queue, a task and a key of the longest names, and more
local ANSWER_BYTES = 8000000
local SOON = 1500000 -- a job that is due within this time wakes the stager
local SCHEDULED, AVAILABLE, EXECUTING, RETRYABLE, SUSPENDED, COMPLETED, DISCARDED, CANCELLED = 1, 2, 3, 4, 5, 6, 7, 8

-- The positions of a run. Trailing unset values are left out; false stands for the payload's value, or none.
local STATE, ATTEMPT, CLAIM, WORKER, ATTEMPTED_AT, STARTED_AT, FINISHED_AT = 1, 2, 3, 4, 5, 6, 7
local READY_AT = 8 -- false: since it was inserted; 0: not at all
local RESULT, ERRORS, NOTES = 9, 10, 11
local SCHEDULED_AT, EXPIRES_AT = 12, 13 -- 0: taken away; of a suspended job less: the delay that begins with its release
local SNOOZED, INTERRUPTED, MAX_ATTEMPTS, CANCEL_REQUEST = 14, 15, 16, 17
local STEPS = 18 -- names and values in turn

-- The flags of a job and of a claim.
local HAS_KEY = 1
local HAS_RUN, IS_CANCEL_REQUESTED = 2, 4 -- of a claim: whether there is more to read than the proof
local HAS_BEGUN = 8 -- of a claim: its function has been called, see note_begun.lua
local IN_FLOW, IS_AWAITED = 16, 32 -- a flow counts this job, others wait for its end

local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

local function go_on_when_full()
    -- A script that writes but adds no job calls this first. A server whose memory is full must refuse enqueues, but workers and
    -- their leader, which free memory, must run. Such a server refuses a script's first write unless that can only free memory,
    -- and no write after it. So the first write deletes a key that is never stored. (The flag allow-oom would be clearer, but Redis
    -- 6.2 has no script flags.)
    call('DEL', P .. 'nothing')
end

local function clock()
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end

local function moment(text)
    -- Read an argument that is a time, or empty for the server's clock.
    return text == '' and clock() or tonumber(text)
end

local function text_of(id)
    return string.format('%.0f', id)
end

local function if_readable(is_read, _, flags, inserted_at, scheduled_at, expires_at, queue, ...)
    -- The decoded values of a payload; nothing if it is not one.
    if is_read and type(flags) == 'number' and type(inserted_at) == 'number' and type(queue) == 'string' then
        return flags, inserted_at, scheduled_at, expires_at, queue, ...
    end
end

local function head(payload)
    -- flags, inserted_at, scheduled_at, expires_at, queue, priority, max_attempts, unique key; nil if it cannot be decoded
    return if_readable(pcall(cmsgpack.unpack_limit, payload, 8, 1))
end

local function new_run(state)
    return {state, 0, 0, false, false, false, false}
end

local function read_run(text, state)
    -- Decode a run; return a new one if there is none, and nil if it cannot be decoded.
    if not text then
        return new_run(state)
    end
    local is_read, run = pcall(cmsgpack.unpack, text)
    if is_read and type(run) == 'table' and type(run[STATE]) == 'number' and type(run[ATTEMPT]) == 'number'
        and type(run[CLAIM]) == 'number' then
        return run
    end
end

local function value_at(key)
    -- The value at a key, or false: a text, or a table, which cannot be decoded, if a user has stored a list, a set or the like
    -- there.
    return redis.pcall('GET', key)
end

local function payload_of(id, payload)
    -- The payload that MGET returned for a job, or false if there is none. MGET returns nothing for a list, a set or the like:
    -- that is a payload that cannot be decoded, so that the caller parks the job.
    return payload or call('EXISTS', P .. 'job:' .. id) == 1 and ''
end

local function proof(text)
    -- claim, attempt, attempted_at, worker, queue, score (a text), flags
    return select(2, cmsgpack.unpack_limit(text, 7, 1))
end

local function ready_at_of(id)
    -- Since when a job is available; nil if it does not exist any more.
    local payload, run = unpack(call('MGET', P .. 'job:' .. id, P .. 'run:' .. id))
    local at = run and (read_run(run) or {})[READY_AT]
    return at or payload and select(2, head(payload)) or nil
end

local function oldest_wait(queue, now)
    -- How many microseconds the oldest available job of a queue has waited; nil if there is none, or none that can be decoded. It
    -- is the first job of one of the priorities, which are checked one after the other, 201 at most.
    local from, first = '-inf', nil
    while true do
        local found = call('ZRANGEBYSCORE', P .. 'ready:' .. queue, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
        if #found == 0 then
            return first and math.max(0, now - first)
        end
        local score = tonumber(found[2])
        local since = ready_at_of(found[1])
        first = first and since and math.min(first, since) or first or since
        from = text_of(score - score % LEVEL + LEVEL)
    end
end

local function put(run, place, value)
    for gap = #run + 1, place - 1 do
        run[gap] = false
    end
    run[place] = value
end

local function append(run, place, value)
    local list = run[place] or {}
    list[#list + 1] = value
    put(run, place, list)
end

local FIRST_ERRORS, MOST_ERRORS = 10, 50

local function append_error(run, value)
    -- Of a job that fails repeatedly, keep the first ten errors and the newest forty, and between them how many are left out.
    local list = run[ERRORS] or {}
    if #list >= MOST_ERRORS then
        local between = list[FIRST_ERRORS + 1]
        local count = type(between) == 'string' and between:match('^{"left_out":(%d+)}$')
        if count then
            table.remove(list, FIRST_ERRORS + 2)
        end
        list[FIRST_ERRORS + 1] = string.format('{"left_out":%d}', (tonumber(count) or 0) + 1)
        run[ERRORS] = list
    end
    append(run, ERRORS, value)
end

local function dated(fault, at)
    -- Dated by the server's clock, not by that of the worker; read by codec.py.
    return fault:find('"at":', 1, true) and string.format('{"at_micros":%.0f,', at) .. fault:sub(2) or fault
end

local function each_part(list, size, act)
    -- unpack() accepts fewer than 8,000 values.
    for first = 1, #list, size do
        act(unpack(list, first, math.min(first + size - 1, #list)))
    end
end

local function ranked(id)
    -- The id as a member of "due": members of one time are sorted as texts, so the length prefix makes them sort as numbers.
    return string.char(64 + #id) .. id
end

local function unranked(member)
    return member:sub(2)
end

local function may_fetch(queue, worker)
    return call('HEXISTS', P .. 'paused', queue) == 0 and call('HEXISTS', P .. 'workers', worker) == 1
        and call('HEXISTS', P .. 'dead', worker) == 0
end

local function pop(queue, limit)
    -- Pop the first jobs of a queue: ids, scores (texts), payloads, runs (false: none). If arguments are large, pop fewer jobs,
    -- because one response could otherwise take hundreds of megabytes; the rest is put back where it was.
    local key, job, run = P .. 'ready:' .. queue, P .. 'job:', P .. 'run:'
    local found = call('ZPOPMIN', key, limit)
    local ids, scores, jobs_at, runs_at, payloads, bytes, count = {}, {}, {}, {}, {}, 0, #found / 2
    for number = 1, count do
        local id = found[2 * number - 1]
        ids[number], scores[number], jobs_at[number], runs_at[number] = id, found[2 * number], job .. id, run .. id
    end
    local first, step = 1, 16
    while first <= count do
        local last = math.min(first + step - 1, count)
        for place, payload in ipairs(call('MGET', unpack(jobs_at, first, last))) do
            payload = payload_of(ids[first + place - 1], payload)
            payloads[first + place - 1] = payload
            bytes = bytes + (payload and #payload or 0)
        end
        first = last + 1
        -- As many as are likely to fit.
        step = math.floor((ANSWER_BYTES - bytes) / (bytes / last + 1))
        if step < 1 and first <= count then
            local rest = {}
            for number = count, first, -1 do
                rest[#rest + 1] = scores[number]
                rest[#rest + 1] = ids[number]
                ids[number], scores[number], jobs_at[number], runs_at[number] = nil, nil, nil, nil
            end
            call('ZADD', key, unpack(rest))
            break
        end
    end
    return ids, scores, payloads, #ids > 0 and call('MGET', unpack(runs_at)) or {}, jobs_at, runs_at
end

local function state_of(id)
    if call('HEXISTS', P .. 'executing', id) == 1 then
        return EXECUTING
    end
    local run = value_at(P .. 'run:' .. id)
    if run then
        return (read_run(run) or new_run(SUSPENDED))[STATE]
    end
    return call('ZSCORE', P .. 'due', ranked(id)) and SCHEDULED or AVAILABLE
end

local function wake(name)
    -- A script that makes a job available calls this itself, so no worker can fall asleep in between. One message wakes all.
    if call('EXISTS', P .. 'asleep:' .. name) == 1 then
        call('PUBLISH', P .. 'wake', name)
        call('DEL', P .. 'asleep:' .. name)
    end
end

local function mark_id(id, bit)
    local block = math.floor(id / 32768)
    call('SETBIT', P .. 'ids:' .. text_of(block), id - block * 32768, bit)
    if bit == 1 then
        call('ZADD', P .. 'blocks', block, text_of(block))
    end
end

local function is_marked(id)
    -- Whether a job of this id exists, or was taken out of the store to run at most once.
    local block = math.floor(id / 32768)
    return call('GETBIT', P .. 'ids:' .. text_of(block), id - block * 32768) == 1
end

local function pass(ids)
    -- Continue the ids after these reserved ones: a server that has lost its last moments, or was emptied meanwhile, would give
    -- them again.
    local highest = math.max(unpack(ids))
    if tonumber(call('GET', P .. 'seq')) < highest then
        call('SET', P .. 'seq', text_of(highest))
    end
end

local function mark_ids(first, last)
    while first <= last do
        local block = math.floor(first / 32768)
        local key = P .. 'ids:' .. text_of(block)
        call('ZADD', P .. 'blocks', block, text_of(block))
        local from, to = first - block * 32768, math.min(last - block * 32768, 32767)
        while from <= to do
            if from % 8 == 0 and to - from >= 7 then
                local bytes = math.floor((to - from + 1) / 8)
                call('SETRANGE', key, from / 8, string.rep('\255', bytes))
                from = from + bytes * 8
            else
                call('SETBIT', key, from, 1)
                from = from + 1
            end
        end
        first = (block + 1) * 32768
    end
end

local function next_places(count)
    -- Reserve consecutive ids and return the first; ids are positions in the order of becoming available, too.
    return call('INCRBY', P .. 'seq', count) - count + 1
end

local function beginning_of(id, count)
    -- The first values of a payload, without its arguments, which may be large; nil if it is missing or cannot be decoded.
    local key = P .. 'job:' .. id
    local text = redis.pcall('GETRANGE', key, 0, HEAD_BYTES)
    if type(text) ~= 'string' or text == '' then -- an error: a list, a set or the like lies there
        return
    elseif #text > HEAD_BYTES and not pcall(cmsgpack.unpack_limit, text, count, 1) then
        text = call('GET', key) -- the names are very long
    end
    return if_readable(pcall(cmsgpack.unpack_limit, text, count, 1))
end

local function head_of(id)
    return beginning_of(id, 8)
end

local span_first, span_last, span_flow = 1, 0, nil

local function flow_of(id)
    -- The flow that counts a job, or nil. Jobs that are stored together are in one span, which is remembered.
    local number = tonumber(id)
    if number < span_first or number > span_last then
        local span = call('ZREVRANGEBYSCORE', P .. 'spans', id, '-inf', 'LIMIT', 0, 1)[1] or ''
        local first, last, flow = span:match('^(%d+)-(%d+)|(%d+)$')
        span_first, span_last, span_flow = number, number, nil
        if first and number <= tonumber(last) then
            span_first, span_last, span_flow = tonumber(first), tonumber(last), flow
        end
    end
    return span_flow
end
