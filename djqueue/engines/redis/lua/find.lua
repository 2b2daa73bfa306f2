-- needs: waiting walk
-- Find jobs by what they are, in the order of their ids: one page of a walk.
-- ARGV: now, filter (see walk.lua), ids beyond this one, and up to this one, how many jobs to look at, how many to find, a msgpack array
-- of the ids to look at (empty: all that there are).
-- Returns: the id to go on after (empty: the walk is over), and the ids of those found.
local at = moment(ARGV[1])
local is_wanted, most = filter_of(ARGV[2], at), tonumber(ARGV[6])
local ids = ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7])
    or next_ids(tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]))
local found, last = {}, #ids == tonumber(ARGV[5]) and ids[#ids] or ''
for number, job in ipairs(look_at(ids)) do
    if job and is_wanted(job) then
        found[#found + 1] = job.id
        if #found == most then
            last = ids[number]
            break
        end
    end
end
return {last, found}
