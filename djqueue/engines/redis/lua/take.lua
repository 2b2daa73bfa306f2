-- Take up to a number of available jobs of one queue out of the store, for a queue whose jobs run at most once.
-- ARGV: queue, limit, worker, now (empty: the server's clock). Returns: as fetch.lua, which see.
-- From here on the job is nowhere but in ids, by which a second push of it is known (insert.lua), until record.lua writes its
-- history: a worker that dies meanwhile takes it along, and nobody can run it again. Its unique key is given up.
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
return {at, ids, payloads, runs}
