-- Write the history of jobs that were taken out of the store (take.lua), or put them back because they did not start.
-- ARGV: now (empty: the server's clock); a flat msgpack array of fifteen for each job: id (text), payload, state, attempt, claim,
-- worker, attempted_at, started_ago and finished_ago (microseconds back from this write), ready_at, result, errors, delay
-- (microseconds until it may be fetched again), note (false: none), has_failed (the last of the errors is new, and dated here).
-- Returns: nothing. A job that is put back gets its unique key again, if it is free. Only this worker had the job, so no outcome is
-- refused; a retry after a lost response finds the job stored.
go_on_when_full()
local at = moment(ARGV[1])
local jobs = cmsgpack.unpack(ARGV[2])
for place = 1, #jobs, 15 do
    local id, payload, state, attempt, claim, worker, attempted_at, started_ago, finished_ago, ready_at, result, errors, delay, note,
        has_failed = unpack(jobs, place, place + 14)
    if call('EXISTS', P .. 'job:' .. id) == 0 then
        local run = new_run(state)
        run[ATTEMPT], run[CLAIM] = attempt, claim
        if has_failed then
            errors[#errors] = dated(errors[#errors], math.floor(at - finished_ago))
        end
        if #errors > 0 then
            put(run, ERRORS, errors)
        end
        local _, _, _, _, queue, priority, _, key = head(payload)
        if key then
            local live, beyond, ends_at = unpack(holder_of(key))
            if live == '' then
                hold(key, id, beyond, ends_at)
            else
                -- Another job has taken the key since. Both were accepted, so this one is put back without its key.
                local rest, _, inserted_at, scheduled_at, expires_at, _, _, max_attempts = cmsgpack.unpack_limit(payload, 8, 1)
                payload = payload:sub(1, 1) .. pack(0, inserted_at, scheduled_at, expires_at, queue, priority, max_attempts, nil)
                    .. payload:sub(rest + 1)
            end
        end
        sets[#sets + 1] = P .. 'job:' .. id
        sets[#sets + 1] = payload
        if state >= COMPLETED then
            run[WORKER], run[ATTEMPTED_AT] = worker, attempted_at
            run[STARTED_AT] = started_ago and math.floor(at - started_ago)
            run[FINISHED_AT] = math.floor(at - finished_ago)
            put(run, READY_AT, ready_at)
            if result then
                put(run, RESULT, result)
            end
            finish(id, run, 0)
        else
            if note then
                append(run, NOTES, note)
            end
            if delay > 0 then
                run[STATE] = SCHEDULED
                put(run, READY_AT, 0)
                put(run, SCHEDULED_AT, at + delay)
                make_wait(id, queue, SCHEDULED, at + delay)
            else
                run[STATE] = AVAILABLE
                put(run, READY_AT, at)
                make_ready_last(id, queue, (100 - priority) * LEVEL)
            end
            keep_run(id, run)
        end
        mark_id(tonumber(id), 1)
    end
end
flush(at)
