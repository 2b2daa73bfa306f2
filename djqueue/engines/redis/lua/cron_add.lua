-- needs: waiting insertion crontab
-- Add an entry to the crontab, unless its name is taken.
-- ARGV: now, name, definition and code as JSON (code '': none), rule (the text that determines the plan), '1' if it is @reboot,
-- who. Returns: its id; nil when the name is taken.
go_on_when_full()
local at = text_of(moment(ARGV[1]))
if call('HEXISTS', P .. 'cron', ARGV[2]) == 1 then
    return false
end
local id = text_of(call('INCR', P .. 'cron:ids'))
call('HSET', P .. 'cron', ARGV[2], id)
call('HSET', entry_key(id),
    'name', ARGV[2], 'definition', ARGV[3], 'code', ARGV[4], 'rule', ARGV[5], 'is_reboot', ARGV[6], 'revision', '1',
    'created_at', at, 'created_by', ARGV[7], 'changed_at', at, 'changed_by', ARGV[7], 'planned_from', at,
    'paused_at', '', 'paused_by', '', 'pause_reason', '', 'disabled_at', '', 'finished_at', '',
    'next_at', '', 'last_nominal_at', '', 'last_outcome', '', 'runs', '0')
place_entry(id)
return id
