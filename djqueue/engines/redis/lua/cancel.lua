-- needs: waiting ends
-- Cancel live jobs: waiting ones end at once, executing ones get a cancel request.
-- ARGV: now, states (digits; empty: any), who, why, ids.
-- Returns: a digit for each: the state that it had (0: no such job); a digit for each: whether it was cancelled or requested; 1 if
-- settle.lua has work.
go_on_when_full()
local at = moment(ARGV[1])
local jobs = look_at({unpack(ARGV, 5)})
local states = states_of(jobs)
local done = cancel_jobs(jobs, at, ARGV[3], ARGV[4], ARGV[2])
flush(at)
local left = take_ends(at)
return {states, done, left}
