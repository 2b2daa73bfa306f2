-- needs: waiting ends revival
-- Let ends have the effects that were left: stop jobs, cancel the rest of a flow, and let jobs live again whose upstream does.
-- ARGV: now (empty: the server's clock); how many jobs to look at.
-- Returns: how many effects were begun; 1 if there are more.
-- Effects are done in the order in which they were stored. What is left of one goes first in the next run.
go_on_when_full()
local at, left, begun = moment(ARGV[1]), tonumber(ARGV[2]), 0

local function look_at_waiting(ids)
    local waiting_ids = {}
    for _, id in ipairs(ids) do
        if call('EXISTS', P .. 'waits:' .. id) == 1 then
            waiting_ids[#waiting_ids + 1] = id
        end
    end
    return look_at(waiting_ids)
end

local function have_effect(id, state, found)
    local met, order, stopped = {}, {}, {}
    for place = 1, #found, 2 do
        local job, effect = found[place], effect_of(state, found[place + 1])
        if effect == 'met' then
            met[job] = {id}
            order[#order + 1] = job
        elseif effect == 'stops' then
            stopped[#stopped + 1] = job
        end
    end
    meet(met, order, at)
    for _, job in ipairs(look_at_waiting(stopped)) do
        if job and job.state == SUSPENDED then
            end_waiting(job, CANCELLED, at, {'DependencyFailed', id, state})
        end
    end
end

local function live_again(id, found)
    local ids, rules = {}, {}
    for place = 1, #found, 2 do
        ids[#ids + 1] = found[place]
        rules[found[place]] = found[place + 1]
    end
    for _, job in ipairs(look_at(ids)) do
        if job and job.state == SUSPENDED then
            if not standing_of(id, rules[job.id]) then
                call('SADD', P .. 'waits:' .. job.id, id)
            end
        elseif job and job.state == CANCELLED then
            local run = run_of(job)
            local waits, count = false, 0
            if was_stopped(run) then
                waits, count = waits_of(job.id)
            end
            left = left - count
            if waits then
                let_live(job, run, waits, at)
            end
        end
    end
end

local function cancel_rest(flow, after)
    -- Cancel the next jobs of a flow, above an id. Returns the last of them, or nil.
    local ids = members_after(flow, after, math.max(1, math.min(left, 100)))
    if #ids > 0 then
        cancel_jobs(look_at(ids), at, '', 'Another job of its workflow failed.', '')
        return ids[#ids], #ids
    end
end

while left > 0 do
    local entry = call('LPOP', P .. 'effects')
    if not entry then
        break
    end
    local id, state, from, to = entry:match('^(%d+)|(%a+)|([^|]*)|(%d+)$')
    begun, left = begun + 1, left - 1
    if state == 'forget' then
        call('UNLINK', P .. 'down:' .. id)
    elseif state == 'cancel' then
        local last_id, count = cancel_rest(id, tonumber(from))
        if last_id then
            call('LPUSH', P .. 'effects', table.concat({id, state, last_id, to}, '|'))
            left = left - count
        end
    else
        local found, next_from
        if from:sub(1, 1) == '=' then
            local job, rule = from:match('^=(%d+)(%a)$')
            found, next_from = {job, rule}, tonumber(to)
        else
            found, next_from = piece_of(id, tonumber(from), tonumber(to))
        end
        if next_from < tonumber(to) then
            call('LPUSH', P .. 'effects', table.concat({id, state, next_from, to}, '|'))
        end
        left = left - #found / 2
        if state == 'lives' then
            live_again(id, found)
        else
            have_effect(id, state, found)
        end
    end
    flush(at)
    take_ends(at)
end
return {begun, call('EXISTS', P .. 'effects')}
