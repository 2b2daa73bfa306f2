-- needs: waiting
-- Read what is at the other end of dependencies. ARGV: 1 for results, too; ids.
-- Returns: for each: 1 and state, meta, result (false: none) of a job; 2 and name, failed_at, finished_at of a flow; 0 if there is none.
local found = {}
local jobs = look_at({unpack(ARGV, 2)})
for number, job in ipairs(jobs) do
    if job then
        local run = ARGV[1] == '1' and job.state == COMPLETED and run_of(job)
        found[number] = {1, job.state, select(10, beginning_of(job.id, 10)) or '{}', run and run[RESULT] or false}
    else
        local name, failed_at, finished_at = unpack(call('HMGET', P .. 'flow:' .. ARGV[number + 1], 'name', 'failed_at', 'finished_at'))
        found[number] = name and {2, name, failed_at, finished_at} or {0}
    end
end
return found
