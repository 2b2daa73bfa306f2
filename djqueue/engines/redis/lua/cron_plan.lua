-- needs: waiting insertion crontab
-- Store when an entry is next due, if it has not changed since it was read.
-- ARGV: now, id, revision and next time as read, the next time ('': never again, the entry is finished). Returns: nothing.
go_on_when_full()
local id = ARGV[2]
local at = text_of(moment(ARGV[1]))
local entry = read_entry(id)
if entry.revision == ARGV[3] and entry.next_at == ARGV[4] and entry.finished_at == '' then
    call('HSET', entry_key(id), 'next_at', ARGV[5], 'finished_at', ARGV[5] == '' and at or '')
    place_entry(id)
end
