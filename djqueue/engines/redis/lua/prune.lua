-- needs: waiting ends
-- Delete finished jobs that are older than their rule allows: one step of a scan of the history.
-- ARGV: a msgpack array of four for each rule: state, queue, task (false: any; a rule has at most one of the two), cutoff (jobs
-- that finished earlier are deleted); queue (empty: all); where the last step ended: a time and how many of the jobs that
-- finished then stay; how many jobs to examine; 1 to count only and delete nothing.
-- Returns: how many were examined, how many were deleted, and where this step ended.
-- Jobs of unfinished flows stay, and those whose result a living job may want.
-- The most specific rule decides: that of the task, then that of the queue, then the general one.
local rules = cmsgpack.unpack(ARGV[1])
local queue, after, skip, is_dry_run = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[6] == '1'
local of_all, of_queue, of_task, last_cutoff, is_special = {}, {}, {}, 0, queue ~= ''
for place = 1, #rules, 4 do
    local state, its_queue, its_task, cutoff = unpack(rules, place, place + 3)
    if its_task then
        of_task[state .. its_task] = cutoff
    elseif its_queue then
        of_queue[state .. its_queue] = cutoff
    else
        of_all[state] = cutoff
    end
    is_special = is_special or its_task or its_queue
    last_cutoff = math.max(last_cutoff, cutoff)
end

local uses_flows, wanted = call('EXISTS', P .. 'has_flows') == 1, {}

local function is_awaited_by_living(id)
    -- Whether one of the first jobs that waited for this job or flow has not ended.
    for place, job in ipairs(piece_of(id, 0, PIECE_BYTES)) do
        if place % 2 == 1 and call('EXISTS', P .. 'job:' .. job) == 1 and not call('ZSCORE', P .. 'finished', job) then
            return true
        end
    end
    return false
end

local function is_flow_wanted(flow)
    local is_wanted = false
    while flow and not is_wanted do
        if wanted[flow] == nil then
            wanted[flow] = call('HEXISTS', P .. 'flow:' .. flow, 'finished_at') == 0 or is_awaited_by_living(flow)
        end
        is_wanted, flow = wanted[flow], call('HGET', P .. 'flow:' .. flow, 'whole')
    end
    return is_wanted
end

local function is_wanted(id)
    local flags = flags_of(id)
    return has(flags, IN_FLOW) and is_flow_wanted(flow_of(id)) or has(flags, IS_AWAITED) and is_awaited_by_living(id)
end

local function goes(id, finished_at)
    local has_run, state = peek_run(id)
    if not has_run then
        return true -- only its place in the history is left
    end
    state = state or DISCARDED -- it cannot be read
    local cutoff = of_all[state]
    if is_special then
        local _, _, _, _, its_queue, _, _, _, its_task = beginning_of(id, 9)
        if queue ~= '' and its_queue ~= queue then
            return false
        end
        cutoff = of_task[state .. (its_task or '')] or of_queue[state .. (its_queue or '')] or cutoff
    end
    return cutoff and finished_at < cutoff and not (uses_flows and is_wanted(id))
end

if uses_flows and not is_dry_run and queue == '' then
    for _, flow in ipairs(call('ZRANGEBYSCORE', P .. 'empty', '-inf', '(' .. text_of(last_cutoff), 'LIMIT', 0, 100)) do
        if not is_awaited_by_living(flow) then
            forget_flow(flow)
        end
    end
end
local found = call('ZRANGEBYSCORE', P .. 'finished', after, '(' .. text_of(last_cutoff), 'WITHSCORES', 'LIMIT', skip, ARGV[5])
local expired, last = {}, after
for place = 1, #found, 2 do
    local id, at = found[place], found[place + 1]
    if at ~= last then
        last, skip = at, 0
    end
    if goes(id, tonumber(at)) then
        expired[#expired + 1] = id
    end
    if is_dry_run or expired[#expired] ~= id then
        skip = skip + 1
    end
end
if #expired > 0 and not is_dry_run then
    call('ZREM', P .. 'finished', unpack(expired))
    forget_in_flows(expired, clock())
    forget(expired)
end
return {#found / 2, #expired, last, skip}
