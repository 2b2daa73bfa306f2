-- needs: waiting ends
-- Make finished, scheduled and retryable jobs available.
-- ARGV: now, states (digits; empty: any), ids.
-- Returns: as cancel.lua, and for each the live job that holds its unique key (empty: none); if there is one, the job stays
-- finished; 1 if settle.lua has work. Nothing, if effects are left that have to come first.
-- The claim is not lowered. The number of attempts continues, with room for at least one more. A finished job loses its scheduled
-- time, its expiry, its result and its cancel request, which belong to its previous run.
if call('LLEN', P .. 'effects') > 0 then
    return false
end
go_on_when_full()
local at = moment(ARGV[1])
local jobs = look_at({unpack(ARGV, 3)})
local done, holds = {}, {}

local function make_available(job)
    local run = run_of(job)
    local function lose(place, first)
        if run[place] or first then
            put(run, place, first and 0 or false)
        end
    end
    if run[ATTEMPT] >= (run[MAX_ATTEMPTS] or job.max_attempts) then
        put(run, MAX_ATTEMPTS, run[ATTEMPT] + 1)
    end
    if job.state >= COMPLETED then
        run[FINISHED_AT] = false
        lose(RESULT)
        lose(CANCEL_REQUEST)
        lose(SCHEDULED_AT, job.scheduled_at)
        lose(EXPIRES_AT, job.expires_at)
    end
    if job.state >= COMPLETED and job.flags >= IN_FLOW then
        give_back(job.id, job.state, job.flags)
    end
    run[STATE] = AVAILABLE
    put(run, READY_AT, at)
    take_out(job)
    unparked[#unparked + 1] = job.id
    keep_run(job.id, run)
    make_ready_last(job.id, job.queue, (100 - job.priority) * LEVEL)
end

for number, job in ipairs(jobs) do
    local is_done = job and (job.state >= COMPLETED or job.state == SCHEDULED or job.state == RETRYABLE)
        and is_among(ARGV[2], job.state)
    holds[number] = ''
    if is_done and job.state >= COMPLETED and job.key then
        local live, beyond, ends_at = unpack(holder_of(job.key))
        if live ~= '' then
            is_done, holds[number] = false, live
        else
            hold(job.key, job.id, beyond, ends_at)
        end
    end
    if is_done then
        make_available(job)
    end
    done[number] = is_done and 1 or 0
end
flush(at)
return {states_of(jobs), table.concat(done), holds, take_ends(at)}
