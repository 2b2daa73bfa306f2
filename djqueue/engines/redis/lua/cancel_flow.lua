-- needs: waiting ends
-- Cancel jobs of a flow and its parts: one page.
-- ARGV: now (empty: the server's clock), id, the job after which to begin, how many jobs, who, why.
-- Returns: how many were cancelled or asked to stop, the job at which to go on (empty: all are done), 1 if settle.lua has work.
-- Effects are left until the last page, so that all of its jobs have the reason of whoever cancelled the flow.
go_on_when_full()
local at = moment(ARGV[1])
local ids = members_after(ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
local done = cancel_jobs(look_at(ids), at, ARGV[5], ARGV[6], '')
flush(at)
local left = take_ends(at)
return {select(2, done:gsub('1', '')), #ids == tonumber(ARGV[4]) and ids[#ids] or '', left}
