-- needs: waiting ends revival
-- Let jobs of a flow and its parts live again that were cancelled or discarded: one page.
-- ARGV: now (empty: the server's clock), id, the job after which to begin, how many jobs.
-- Returns: how many live again, the job at which to go on (empty: all are done), 1 if settle.lua has work. Nothing, if effects are left
-- that have to come first.
-- In the order of the ids, so that what a job waits for lives again before it. A job that never started waits for what it waited for,
-- and stays as it is if something else still stops it.
if call('LLEN', P .. 'effects') > 0 then
    return false
end
go_on_when_full()
local at, count = moment(ARGV[1]), 0
local ids = members_after(ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
for _, job in ipairs(look_at(ids)) do
    if job and (job.state == CANCELLED or job.state == DISCARDED) then
        local run = run_of(job)
        local waits = {}
        if not job.started_at then
            waits = waits_of(job.id)
        end
        if waits then
            let_live(job, run, waits, at)
            flush(at)
            apply_counts(at)
            count = count + 1
        end
    end
end
return {count, #ids == tonumber(ARGV[4]) and ids[#ids] or '', take_ends(at)}
