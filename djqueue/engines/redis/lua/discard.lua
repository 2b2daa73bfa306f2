-- needs: waiting ends
-- Discard waiting jobs: they end at once, without a failure of their own.
-- ARGV: now, states (digits; empty: any), who, why, ids. Returns: as cancel.lua.
go_on_when_full()
local at = moment(ARGV[1])
local jobs = look_at({unpack(ARGV, 5)})
local done = {}
for number, job in ipairs(jobs) do
    local is_done = job and job.state < COMPLETED and job.state ~= EXECUTING and is_among(ARGV[2], job.state)
    if is_done then
        end_waiting(job, DISCARDED, at, {'Discard', ARGV[3], ARGV[4]})
    end
    done[number] = is_done and 1 or 0
end
flush(at)
return {states_of(jobs), table.concat(done), take_ends(at)}
