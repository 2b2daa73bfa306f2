-- needs: waiting
-- Cancel live jobs: those that wait end at once, those that execute are asked to end.
-- ARGV: now, states (digits; empty: whatever their state), who, why, ids.
-- Returns: a digit for each: the state that it had (0: there is none); a digit for each: whether it was done.
go_on_when_full()
local at = moment(ARGV[1])
local jobs = look_at({unpack(ARGV, 5)})
local states = states_of(jobs)
local done = cancel_jobs(jobs, at, ARGV[3], ARGV[4], ARGV[2])
flush(at)
return {states, done}
