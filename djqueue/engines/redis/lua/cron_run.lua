-- needs: waiting insertion crontab
-- Insert a job of an entry at once, regardless of its schedule, and record who requested it.
-- ARGV: now, id, who, the job: a msgpack array of nine, see insert.lua; a msgpack array of the rule, see insertion.lua.
-- Returns: outcome, reason, id of the job ('': none).
-- The tick has no nominal time, because a manual run does not replace a planned one.
local at = moment(ARGV[1])
local job, reason = insert_scheduled(ARGV[4], at, ARGV[5])
local outcome = job ~= '' and 'enqueued' or 'skipped'
if call('EXISTS', entry_key(ARGV[2])) == 1 then
    write_tick(ARGV[2], at, '', outcome, reason, job, '', ARGV[3])
end
return {outcome, reason, job}
