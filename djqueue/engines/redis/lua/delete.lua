-- needs: waiting ends
-- Delete waiting and finished jobs completely. Unique keys that they held beyond their life are released.
-- ARGV: states (digits; empty: any), ids. Returns: as cancel.lua.
-- An executing job is never deleted: its worker could not store the outcome.
go_on_when_full()
local jobs = look_at({unpack(ARGV, 2)})
local done, gone = {}, {}
for number, job in ipairs(jobs) do
    local is_done = job and job.state ~= EXECUTING and is_among(ARGV[1], job.state)
    if is_done then
        take_out(job)
        if job.state < COMPLETED and job.flags >= IN_FLOW then
            ended[#ended + 1] = {job.id, 'deleted', job.flags}
        end
        gone[#gone + 1] = job.id
        if job.key then
            local live, beyond = unpack(holder_of(job.key))
            if beyond == job.id then
                hold(job.key, live, '', '')
                call('ZREM', P .. 'holds', job.key)
                call('ZREM', P .. 'holds:kept', job.key)
            end
            free_key(job.id, job.key)
        end
    end
    done[number] = is_done and 1 or 0
end
local at = clock()
flush(at)
take_ends(at)
forget_in_flows(gone, at)
forget(gone)
return {states_of(jobs), table.concat(done), has_effects and 1 or 0}
