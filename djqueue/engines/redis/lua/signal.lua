-- needs: waiting ends
-- Complete a job that waits for a signal. ARGV: now (empty: the server's clock), id, the name of its task, payload (JSON; empty: null),
-- a note for its meta (empty: none).
-- Returns: whether it waited; 1 if settle.lua has work.
go_on_when_full()
local at = moment(ARGV[1])
local job = look_at({ARGV[2]})[1]
if not job or job.task ~= ARGV[3] or job.state >= COMPLETED or job.state == EXECUTING or job.state == SUSPENDED then
    return {0, 0}
end
local run = run_of(job)
run[STATE], run[FINISHED_AT] = COMPLETED, at
if ARGV[4] ~= '' then
    put(run, RESULT, ARGV[4])
end
if ARGV[5] ~= '' then
    append(run, NOTES, ARGV[5])
end
take_out(job)
unparked[1] = job.id
finish(job.id, run, job.flags)
flush(at)
return {1, take_ends(at)}
