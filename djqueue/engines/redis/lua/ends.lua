-- Shared by the scripts that end jobs of flows, or jobs that others wait for. finish() notes such ends; after flush() a script calls
-- take_ends(), which counts them in their flows and releases what waited for nothing else.
-- flow:<id> is a hash: kind, name, on_failure, meta, key, inserted_at; whole: the flow that this one is a part of; top: the first of
-- this chain; total, completed, cancelled, discarded, and kept, how many of its jobs are stored: with those of its parts; opens: how
-- many of it and its parts are open, and is_open: whether it is itself; failed_at, finished_at.
-- Effects are done or stored: a script does a limited number, and those that stop jobs are left to settle.lua. Each can be done
-- twice without harm, because a dependency is removed from waits:<id> once. So an effect and a new end may meet in any order; only
-- what gives an end back (retry.lua) has to wait for the effects to be done.
local MOST_EFFECTS = 500
local PIECE_BYTES = 2048 -- of down:<id>: some hundred jobs
local NAMES = {[COMPLETED] = 'completed', [DISCARDED] = 'discarded', [CANCELLED] = 'cancelled', deleted = 'deleted'}
local counts, touched = {}, {} -- by flow: changes of its fields
local spreads = {} -- effects that this script may begin with
local has_effects = false

local function store_effect(id, state, from, to)
    call('RPUSH', P .. 'effects', table.concat({id, state, from, to}, '|'))
    has_effects = true
end

local function spread(id, state)
    -- Note that an end has its effect on all that wait for it now.
    local size = call('STRLEN', P .. 'down:' .. id)
    if size > 0 then
        spreads[#spreads + 1] = {id, state, 0, size}
    end
end

local function effect_of(state, rule)
    -- What an end does to a dependency: 'met', 'stops', or nil.
    if state == 'completed' then
        return rule == 'f' and 'stops' or 'met'
    elseif state == 'failing' then
        return rule == 'f' and 'met' or nil
    elseif state == 'failed' then
        return rule == 's' and 'stops' or rule ~= 'f' and 'met' or nil
    end
    return rule == 's' and 'stops' or 'met'
end

local function begin(id, at)
    -- Make a suspended job available, or scheduled, whose dependencies are met.
    local _, _, scheduled_at, _, queue, priority = head_of(id)
    local run = read_run(value_at(P .. 'run:' .. id), AVAILABLE)
    if not (queue and run) then
        park(id, at)
    elseif run[STATE] == SUSPENDED then
        local due_at = run[SCHEDULED_AT] or scheduled_at or 0
        if due_at < 0 then
            due_at = at - due_at
            run[SCHEDULED_AT] = due_at
        end
        count_waiting(SUSPENDED, queue, -1)
        if due_at > at then
            run[STATE] = SCHEDULED
            make_wait(id, queue, SCHEDULED, due_at)
            if due_at - at <= SOON then
                wake('!stage')
            end
        else
            run[STATE] = AVAILABLE
            put(run, READY_AT, at)
            make_ready_last(id, queue, (100 - priority) * LEVEL)
        end
        keep_run(id, run)
    end
end

local function meet(met, order, at)
    -- met: by job, the upstreams that it waits for no longer.
    for _, id in ipairs(order) do
        local removed = 0
        each_part(met[id], 7000, function(...) removed = removed + call('SREM', P .. 'waits:' .. id, ...) end)
        if removed > 0 and call('EXISTS', P .. 'waits:' .. id) == 0 then
            begin(id, at)
        end
    end
end

local function piece_of(id, from, to)
    -- The jobs in the first part of a range of down:<id>, as a flat list of ids and rules, and where the part ends.
    local text = call('GETRANGE', P .. 'down:' .. id, from, math.min(to, from + PIECE_BYTES) - 1)
    local found, ends = {}, 0
    for job, rule, place in text:gmatch('(%d+)(%a),()') do
        found[#found + 1] = job
        found[#found + 1] = rule
        ends = place - 1
    end
    return found, ends > 0 and from + ends or to -- nothing is there any more
end

local function do_spreads(at)
    -- Release what can be, up to a number of jobs; store the rest of the effects.
    local met, order, left = {}, {}, MOST_EFFECTS
    for _, one in ipairs(spreads) do
        local id, state, from, to = unpack(one)
        while from < to do
            if left <= 0 or state ~= 'completed' and state ~= 'failing' then
                store_effect(id, state, from, to)
                break
            end
            local found, next_from = piece_of(id, from, to)
            for place = 1, #found, 2 do
                local job, effect = found[place], effect_of(state, found[place + 1])
                if effect == 'met' then
                    if not met[job] then
                        met[job] = {}
                        order[#order + 1] = job
                        left = left - 1
                    end
                    table.insert(met[job], id)
                elseif effect == 'stops' then
                    store_effect(id, state, '=' .. job .. found[place + 1], 0)
                end
            end
            from = next_from
        end
    end
    spreads = {}
    meet(met, order, at)
end

local function count_in(flow, field, change)
    -- Change a number of a flow and of those that it is a part of.
    while flow do
        local of = counts[flow]
        if not of then
            of = {whole = call('HGET', P .. 'flow:' .. flow, 'whole')}
            counts[flow] = of
            touched[#touched + 1] = flow
        end
        of[field] = (of[field] or 0) + change
        flow = of.whole
    end
end

local function give_back(id, state, flags)
    -- A job that had ended in this state lives again: its flow goes on, and what has waited for it is looked at by settle.lua.
    if has(flags, IN_FLOW) then
        local field = state == COMPLETED and 'completed' or state == DISCARDED and 'discarded' or 'cancelled'
        count_in(flow_of(id), field, -1)
    end
    if has(flags, IS_AWAITED) then
        spread(id, 'lives')
    end
end

local function hold_flow_key(flow, key, is_held)
    local holder = call('GET', P .. 'flowkey:' .. key)
    if is_held and not holder then
        call('SET', P .. 'flowkey:' .. key, flow)
    elseif not is_held and holder == flow then
        call('DEL', P .. 'flowkey:' .. key)
    end
end

local function look_at_flow(flow, at)
    -- What follows from the numbers of a flow: its first failure, its end, or that it goes on.
    local key = P .. 'flow:' .. flow
    local total, completed, cancelled, discarded, kept, opens, failed_at, finished_at, on_failure, unique = unpack(call('HMGET', key,
        'total', 'completed', 'cancelled', 'discarded', 'kept', 'opens', 'failed_at', 'finished_at', 'on_failure', 'key'))
    if not total then
        return
    end
    local failures = cancelled + discarded
    local is_over = completed + failures == tonumber(total) and tonumber(opens) <= 0
    if failures > 0 and not failed_at then
        call('HSET', key, 'failed_at', text_of(at))
        if on_failure == 'cancel' then
            store_effect(flow, 'cancel', 0, 0)
        end
        spread(flow, 'failing')
    elseif failures == 0 and failed_at then
        call('HDEL', key, 'failed_at')
        spread(flow, 'lives')
    end
    if is_over and not finished_at then
        call('HSET', key, 'finished_at', text_of(at))
        if unique then
            hold_flow_key(flow, unique, false)
        end
        if tonumber(kept) <= 0 then
            call('ZADD', P .. 'empty', text_of(at), flow) -- no job will take it away when it is deleted
        end
        spread(flow, failures > 0 and 'failed' or 'completed')
    elseif not is_over and finished_at then
        call('HDEL', key, 'finished_at')
        if unique then
            hold_flow_key(flow, unique, true)
        end
        spread(flow, 'lives')
    end
end

local function apply_counts(at)
    local flows = touched
    for _, flow in ipairs(flows) do
        for field, change in pairs(counts[flow]) do
            if field ~= 'whole' and change ~= 0 then
                call('HINCRBY', P .. 'flow:' .. flow, field, change)
            end
        end
    end
    counts, touched = {}, {}
    for _, flow in ipairs(flows) do
        look_at_flow(flow, at)
    end
end

local function take_ends(at)
    -- Returns 1 if there are effects for settle.lua, else 0.
    local own = {}
    for _, one in ipairs(ended) do
        local id, state, flags = unpack(one)
        local flow = has(flags, IN_FLOW) and flow_of(id)
        if flow then
            local field = state == COMPLETED and 'completed' or state == DISCARDED and 'discarded' or 'cancelled'
            own[flow] = own[flow] or {}
            own[flow][field] = (own[flow][field] or 0) + 1
        end
        if has(flags, IS_AWAITED) then
            spread(id, NAMES[state])
        end
    end
    ended = {}
    for flow, fields in pairs(own) do
        for field, number in pairs(fields) do
            count_in(flow, field, number)
        end
    end
    apply_counts(at)
    do_spreads(at)
    flush(at)
    if has_effects then
        wake('!stage')
    end
    return has_effects and 1 or 0
end

local function forget_down(id)
    -- Effects that are left still read it.
    if call('LLEN', P .. 'effects') > 0 then
        store_effect(id, 'forget', 0, 0)
    else
        call('UNLINK', P .. 'down:' .. id)
    end
end

local function forget_flow(flow)
    for _, member in ipairs(call('ZRANGE', P .. 'members:' .. flow, 0, -1)) do
        if member:match('%d+$') == flow then
            call('ZREM', P .. 'spans', member)
            local whole = call('HGET', P .. 'flow:' .. flow, 'whole')
            while whole do
                call('ZREM', P .. 'members:' .. whole, member)
                whole = call('HGET', P .. 'flow:' .. whole, 'whole')
            end
        end
    end
    call('ZREM', P .. 'flows', flow)
    call('ZREM', P .. 'empty', flow)
    call('UNLINK', P .. 'flow:' .. flow, P .. 'members:' .. flow)
    forget_down(flow)
end

local function flags_of(id)
    local start = redis.pcall('GETRANGE', P .. 'job:' .. id, 0, 1)
    return type(start) == 'string' and start:byte(1) == 155 and start:byte(2) or 0
end

local function forget_in_flows(ids, at)
    -- Before forget(): remove the dependencies of these jobs, and flows that have finished and lose their last job.
    if call('EXISTS', P .. 'has_flows') == 0 then
        return
    end
    for _, id in ipairs(ids) do
        local flags = flags_of(id)
        if flags >= IN_FLOW then
            count_in(has(flags, IN_FLOW) and flow_of(id), 'kept', -1)
            call('UNLINK', P .. 'up:' .. id, P .. 'waits:' .. id)
            if has(flags, IS_AWAITED) then
                forget_down(id)
            end
        end
    end
    local flows = touched
    apply_counts(at)
    for _, flow in ipairs(flows) do
        local kept, finished_at = unpack(call('HMGET', P .. 'flow:' .. flow, 'kept', 'finished_at'))
        if finished_at and tonumber(kept) <= 0 then
            forget_flow(flow)
        end
    end
end

local function members_after(flow, after, most, is_own_only)
    -- The ids of the next jobs of a flow and its parts (or only its own), and the flows that count them.
    local key, ids, flows = P .. 'members:' .. flow, {}, {}
    local spans = call('ZREVRANGEBYSCORE', key, text_of(after + 1), '-inf', 'LIMIT', 0, 1)
    local next_first = '(' .. text_of(after + 1)
    repeat
        for _, span in ipairs(spans) do
            local first, last, own = span:match('^(%d+)-(%d+)|(%d+)$')
            next_first = tonumber(first) > after + 1 and '(' .. first or next_first
            if own == flow or not is_own_only then
                local from = math.max(tonumber(first), after + 1)
                for id = from, math.min(tonumber(last), from + most - #ids - 1) do
                    ids[#ids + 1] = text_of(id)
                    flows[#flows + 1] = own
                end
            end
        end
        spans = #ids < most and call('ZRANGEBYSCORE', key, next_first, '+inf', 'LIMIT', 0, 1000) or {}
    until #spans == 0
    return ids, flows
end
