-- needs: crontab insertion
-- Insert a job of an entry at once, whatever its schedule says, and write down who asked.
-- ARGV: now, id, who; then the job as insert.lua takes it. Returns: outcome, reason, id of the job ('': none).
-- No nominal time: a run by hand takes no place of one that is planned.
local at = moment(ARGV[1])
local job, reason = insert_one(at, 4)
local outcome = job ~= '' and 'enqueued' or 'skipped'
if call('EXISTS', entry_key(ARGV[2])) == 1 then
    write_tick(ARGV[2], at, '', outcome, reason, job, '', ARGV[3])
end
return {outcome, reason, job}
