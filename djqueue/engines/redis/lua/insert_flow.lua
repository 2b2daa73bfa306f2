-- needs: ends
-- Store flows, jobs and their dependencies, or a part of the jobs.
-- ARGV: now (empty: the server's clock); the first of the ids, which were reserved together: first those of the flows, then those of
-- the jobs (empty: the next ones); how many flows and how many jobs there are; the place of the first job of this part, from 0;
-- a flat msgpack array of nine for each flow: kind, name, on_failure, its whole's place (from 0), its whole's id (false: none), whether
-- it is open, meta, unique key (false: none), how many jobs it and its parts have, and how many of them are open; such an array of
-- ten for each job: the first eight of insert.lua, its flags, and a flat array of its upstreams: 0 and the place of a job, 1 and the
-- place of a flow, 2 and an id, each with its rule; an array of spans of jobs that the same flow counts: its place, the places of the
-- first and the last job.
-- Returns: the time used as now, the first id (0: nothing was stored, and instead follow the id of the flow that holds a unique key,
-- or 0, and that of the whole that has finished or does not exist), a digit for each job: its state, 1 if settle.lua has work.
-- The flows are stored by the part that begins at 0. The other parts store nothing if it did not.
local at = moment(ARGV[1])
local flow_count, job_count, first_place = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local flows, jobs, spans = cmsgpack.unpack(ARGV[6]), cmsgpack.unpack(ARGV[7]), cmsgpack.unpack(ARGV[8])
local is_beginning, count = first_place == 0, #jobs / 10
local FIELDS = 10

if is_beginning then
    for place = 1, #flows, FIELDS do
        local holder = flows[place + 7] and call('GET', P .. 'flowkey:' .. flows[place + 7])
        if holder then
            return {at, 0, tonumber(holder), 0}
        end
        local whole = flows[place + 4]
        if whole then
            local total, finished_at = unpack(call('HMGET', P .. 'flow:' .. text_of(whole), 'total', 'finished_at'))
            if not total or finished_at then
                return {at, 0, 0, whole}
            end
        end
    end
elseif flow_count > 0 and call('EXISTS', P .. 'flow:' .. ARGV[2]) == 0 then
    return {at, 0, 0, 0}
end

local order, first
if ARGV[2] == '' then
    first = next_places(flow_count + job_count)
    order = first + flow_count
else
    first, order = tonumber(ARGV[2]), next_places(math.max(count, 1))
    pass({first + flow_count + job_count - 1})
end
call('SET', P .. 'has_flows', '1')

local function flow_id(place)
    return text_of(first + place)
end

local function job_id(place)
    return text_of(first + flow_count + place)
end

local wholes = {}
local function whole_of(flow)
    if wholes[flow] == nil then
        wholes[flow] = call('HGET', P .. 'flow:' .. flow, 'whole')
    end
    return wholes[flow]
end

local function store_flow(place, kind, name, on_failure, whole_place, whole_id, is_open, meta, key, total, opens)
    local id = flow_id(place)
    local whole = whole_id and text_of(whole_id) or whole_place and flow_id(whole_place)
    local fields = {
        'kind', kind, 'name', name, 'on_failure', on_failure, 'meta', meta, 'inserted_at', text_of(at), 'total', total, 'kept', total,
        'opens', opens, 'completed', 0, 'cancelled', 0, 'discarded', 0,
    }
    local function add(field, value)
        fields[#fields + 1] = field
        fields[#fields + 1] = value
    end
    if is_open then
        add('is_open', '1')
    end
    if key then
        add('key', key)
        call('SET', P .. 'flowkey:' .. key, id)
    end
    if whole then
        add('whole', whole)
        add('top', call('HGET', P .. 'flow:' .. whole, 'top') or whole)
    else
        call('ZADD', P .. 'flows', id, id)
    end
    call('HSET', P .. 'flow:' .. id, unpack(fields))
    if whole_id then
        count_in(whole, 'total', total)
        count_in(whole, 'kept', total)
        count_in(whole, 'opens', opens)
    end
end

if is_beginning then
    for place = 0, flow_count - 1 do
        store_flow(place, unpack(flows, place * FIELDS + 1, place * FIELDS + FIELDS))
    end
    for place = 0, flow_count - 1 do
        touched[#touched + 1] = flow_id(place)
        counts[flow_id(place)] = counts[flow_id(place)] or {}
    end
end
for _, span in ipairs(spans) do
    local flow, from = flow_id(span[1]), job_id(span[2])
    local member = from .. '-' .. job_id(span[3]) .. '|' .. flow
    call('ZADD', P .. 'spans', from, member)
    local one = flow
    while one do
        call('ZADD', P .. 'members:' .. one, from, member)
        one = whole_of(one)
    end
end

local function mark_awaited(id)
    -- The job, and its claim, say from now on that others wait for its end.
    local start = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 1)
    local flags = type(start) == 'string' and start:byte(1) == 155 and start:byte(2)
    if flags and not has(flags, IS_AWAITED) then
        call('SETRANGE', P .. 'job:' .. id, 1, string.char(flags + IS_AWAITED))
    end
    local text = call('HGET', P .. 'executing', id)
    if text then
        local claim, attempt, attempted_at, worker, queue, score, its_flags = proof(text)
        if not has(its_flags, IS_AWAITED) then
            its_flags = its_flags + IS_AWAITED
            call('HSET', P .. 'executing', id, '\151' .. pack(claim, attempt, attempted_at, worker, queue, score, its_flags))
        end
    end
end

local function state_of_stored(id, rule)
    -- How a job or a flow that is stored has ended (nil: it has not), and whether it exists.
    local failed_at, finished_at, total = unpack(call('HMGET', P .. 'flow:' .. id, 'failed_at', 'finished_at', 'total'))
    if total then
        if rule == 'f' and failed_at then
            return 'failing', true
        end
        return finished_at and (failed_at and 'failed' or 'completed') or nil, true
    elseif call('EXISTS', P .. 'job:' .. id) == 0 then
        return 'deleted', false
    end
    mark_awaited(id)
    local state = state_of(id)
    return NAMES[state], true
end

local down, new_down, old_down, states, queues, soon, stops = {}, {}, {}, {}, {}, false, {}

local function add_down(upstream, is_new, text)
    if not down[upstream] then
        down[upstream] = {}
        table.insert(is_new and new_down or old_down, upstream)
    end
    table.insert(down[upstream], text)
end

local function look_at_upstreams(id, upstreams)
    -- Returns: what the job waits for, and the text of up:<id>.
    local waits, texts = {}, {}
    for place = 1, #upstreams, 3 do
        local kind, which, rule = upstreams[place], upstreams[place + 1], upstreams[place + 2]
        local upstream, effect, exists = text_of(which), nil, true
        if kind ~= 2 then
            upstream = kind == 0 and job_id(which) or flow_id(which)
        end
        if kind == 2 or kind == 1 and not is_beginning then
            local state
            state, exists = state_of_stored(upstream, rule)
            effect = state and effect_of(state, rule)
            if effect == 'stops' then
                stops[#stops + 1] = {upstream, state, '=' .. id .. rule, 0}
            end
        end
        if exists then
            add_down(upstream, kind == 0 and which >= first_place, id .. rule .. ',')
        end
        if effect ~= 'met' then
            waits[#waits + 1] = upstream
        end
        texts[#texts + 1] = upstream .. rule .. ','
    end
    return waits, table.concat(texts)
end

for number = 1, count do
    local place = (number - 1) * 10
    local text, queue, flags, upstreams = job_id(first_place + number - 1), jobs[place + 3], jobs[place + 9], jobs[place + 10]
    local due_at, delay = jobs[place + 5], jobs[place + 6]
    local ends_at = jobs[place + 7] or jobs[place + 8] and at + jobs[place + 8]
    local waits = {}
    queues[queue] = true
    if #upstreams > 0 then
        local up
        waits, up = look_at_upstreams(text, upstreams)
        sets[#sets + 1] = P .. 'up:' .. text
        sets[#sets + 1] = up
    end
    if #waits == 0 and not due_at and delay and delay > 0 then
        due_at = at + delay
    end
    sets[#sets + 1] = P .. 'job:' .. text
    sets[#sets + 1] = '\155' .. pack(flags, at, due_at or nil, ends_at or nil) .. jobs[place + 1] .. jobs[place + 2]
    if #waits > 0 then
        local run = new_run(SUSPENDED)
        put(run, READY_AT, 0)
        if not due_at and delay and delay > 0 then
            put(run, SCHEDULED_AT, -delay)
        end
        keep_run(text, run)
        count_waiting(SUSPENDED, queue, 1)
        each_part(waits, 7000, function(...) call('SADD', P .. 'waits:' .. text, ...) end)
        states[number] = SUSPENDED
    elseif due_at and due_at > at then
        make_wait(text, queue, SCHEDULED, due_at)
        soon = soon or due_at - at <= SOON
        states[number] = SCHEDULED
    else
        make_ready(text, queue, (100 - jobs[place + 4]) * LEVEL + order + number - 1)
        states[number] = AVAILABLE
    end
end
for _, upstream in ipairs(new_down) do
    sets[#sets + 1] = P .. 'down:' .. upstream
    sets[#sets + 1] = table.concat(down[upstream])
end
flush(at)
for _, upstream in ipairs(old_down) do
    call('APPEND', P .. 'down:' .. upstream, table.concat(down[upstream]))
end
if count > 0 then
    mark_ids(first + flow_count + first_place, first + flow_count + first_place + count - 1)
end
for queue in pairs(queues) do
    call('SADD', P .. 'queues', queue)
end
if soon then
    wake('!stage')
end
for _, one in ipairs(stops) do
    store_effect(unpack(one))
end
return {at, first, table.concat(states), take_ends(at)}
