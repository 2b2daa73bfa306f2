-- needs: waiting insertion crontab
-- Change an entry, if it has not changed since it was read.
-- ARGV: now, id, revision as read, definition, code, rule and '1' if it is @reboot as in cron_add.lua, '1' if it is to be paused,
-- why, '1' if it is to be disabled, who. Returns: the new revision; nil when another process changed it first.
-- An entry that is resumed, enabled or given another rule is planned anew from now: the next time of the old rule is dropped, and
-- times that passed meanwhile do not count as missed. Any other change keeps the next time.
go_on_when_full()
local id, is_paused, is_disabled, who = ARGV[2], ARGV[8] == '1', ARGV[10] == '1', ARGV[11]
local at = text_of(moment(ARGV[1]))
local entry = read_entry(id)
if entry.revision ~= ARGV[3] then
    return false
end
local is_replanned = entry.rule ~= ARGV[6] or (entry.paused_at ~= '' and not is_paused)
    or (entry.disabled_at ~= '' and not is_disabled)
local function since(before, is_so)
    return is_so and (before ~= '' and before or at) or ''
end
local revision = text_of(tonumber(entry.revision) + 1)
call('HSET', entry_key(id),
    'definition', ARGV[4], 'code', ARGV[5], 'rule', ARGV[6], 'is_reboot', ARGV[7],
    'paused_at', since(entry.paused_at, is_paused),
    'paused_by', is_paused and (entry.paused_at ~= '' and entry.paused_by or who) or '',
    'pause_reason', is_paused and ARGV[9] or '',
    'disabled_at', since(entry.disabled_at, is_disabled),
    'finished_at', is_replanned and '' or entry.finished_at,
    'planned_from', is_replanned and at or entry.planned_from,
    'next_at', is_replanned and '' or entry.next_at,
    'changed_at', at, 'changed_by', who, 'revision', revision)
place_entry(id)
return revision
