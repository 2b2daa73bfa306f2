-- needs: waiting insertion crontab
-- Handle one nominal time of an entry, once: insert its job, record the tick and advance the entry.
-- ARGV: now, id, revision, next and last nominal time as read, the nominal time, the next one (empty: this was the last time;
-- @reboot has none either), why there is no job (empty: there is one), the first time that was missed, what to do about an
-- overlap, the number of runs that ends it (empty: unlimited), who cancels and why, the job: a msgpack array of nine, see
-- insert.lua; a msgpack array of the rule, see insertion.lua.
-- Returns: outcome, reason, id of the job ('': none).
-- Stale if the entry has changed since it was read: of two schedulers, the second sees that next_at has advanced.
-- last_nominal_at alone would be enough, and it stays when ticks are pruned.
local id, nominal, next_at, reason, overlap = ARGV[2], ARGV[6], ARGV[7], ARGV[8], ARGV[10]
local entry = read_entry(id)
if entry.revision ~= ARGV[3] or entry.next_at ~= ARGV[4] or entry.last_nominal_at ~= ARGV[5] or not is_active(entry)
    or (ARGV[5] ~= '' and tonumber(ARGV[5]) >= tonumber(nominal)) then
    return {'stale', '', ''}
end
local at = moment(ARGV[1])
local job = ''
if reason == '' and overlap ~= 'allow' then
    local living = living_jobs(id)
    if #living > 0 then
        if overlap == 'queue' then
            return {'held', '', ''}
        elseif overlap == 'skip' then
            reason = 'overlap'
        elseif overlap == 'cancel_running' then
            cancel_jobs(living, at, ARGV[12], ARGV[13], '')
            flush(at)
        end
    end
end
if reason == '' and ARGV[14] ~= '' then
    job, reason = insert_scheduled(ARGV[14], at, ARGV[15])
else
    go_on_when_full()
end
local outcome = job ~= '' and 'enqueued' or 'skipped'
local runs = tonumber(entry.runs) + (job ~= '' and 1 or 0)
local is_last = (next_at == '' and entry.is_reboot == '') or (ARGV[11] ~= '' and runs >= tonumber(ARGV[11]))
write_tick(id, at, nominal, outcome, reason, job, ARGV[9], '')
call('HSET', entry_key(id),
    'last_nominal_at', nominal, 'next_at', is_last and '' or next_at, 'finished_at', is_last and text_of(at) or '',
    'last_outcome', reason == '' and outcome or outcome .. ': ' .. reason, 'runs', text_of(runs))
place_entry(id)
return {outcome, reason, job}
