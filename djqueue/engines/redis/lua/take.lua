-- needs: ends
-- Remove up to a number of available jobs of one queue from the store, for a queue whose jobs run at most once.
-- ARGV: queue, limit, worker, now (empty: the server's clock). Returns: as fetch.lua.
-- After this the job exists only in ids, by which insert.lua recognizes a second push of it, until record.lua writes its
-- history. Jobs of flows, and those that others wait for, end as discarded instead: a lost one would keep others waiting for ever. If
-- the worker dies meanwhile, the job is lost and cannot run again. Its unique key is released.
local queue, worker = ARGV[1], ARGV[3]
if not may_fetch(queue, worker) then
    return {}
end
local ids, _, payloads, runs, jobs_at, runs_at = pop(queue, ARGV[2])
if #ids == 0 then
    return {}
end
local at = moment(ARGV[4])
local gone = {}
for number, id in ipairs(ids) do
    local payload = payloads[number]
    local flags, _, _, _, _, _, _, key = head(payload or '')
    if payload and not (flags and read_run(runs[number], AVAILABLE)) then
        park(id, at)
        payloads[number] = false
    elseif flags and flags >= IN_FLOW then
        local run = read_run(runs[number], AVAILABLE)
        run[STATE], run[FINISHED_AT] = DISCARDED, at
        append(run, ERRORS, {'InvalidJob', run[ATTEMPT], at, '', 'Jobs of workflows cannot run in a queue whose jobs run at most once.'})
        finish(id, run, flags)
        payloads[number] = false
    else
        if key then
            free_key(id, key)
        end
        gone[#gone + 1] = jobs_at[number]
        gone[#gone + 1] = runs_at[number]
    end
end
each_part(gone, 7000, function(...) call('DEL', ...) end)
flush(at)
if #ended > 0 then
    take_ends(at)
end
return {at, ids, payloads, runs}
