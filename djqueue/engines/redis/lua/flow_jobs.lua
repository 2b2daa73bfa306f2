-- needs: waiting ends
-- Read the next jobs of a flow. ARGV: id, the job after which to begin, how many, 1 for its own only (not of its parts), 1 for results
-- instead of what a graph needs.
-- Returns: the job at which to go on (empty: none is left); for each that exists: id, state, and its result (false: none), or: id, state,
-- flow, queue, task, meta, how many it waits for, what it waited for (the text of up:<id>; false: nothing).
local ids, flows = members_after(ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1')
local found = {}
for number, job in ipairs(look_at(ids)) do
    if job and ARGV[5] == '1' then
        local run = job.state == COMPLETED and run_of(job)
        found[#found + 1] = {job.id, job.state, run and run[RESULT] or false}
    elseif job then
        found[#found + 1] = {
            job.id, job.state, flows[number], job.queue, job.task, select(10, beginning_of(job.id, 10)) or '{}',
            call('SCARD', P .. 'waits:' .. job.id), call('GET', P .. 'up:' .. job.id),
        }
    end
end
return {#ids == tonumber(ARGV[3]) and ids[#ids] or '', found}
