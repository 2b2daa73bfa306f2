-- needs: waiting walk
-- Find jobs by a filter, in id order: one page of a scan.
-- ARGV: now, filter (see walk.lua), the id to start after, the last id, how many jobs to examine, how many to find, a msgpack array
-- of the ids to examine (empty: all).
-- Returns: the id to continue after (empty: the scan is complete), and the ids of the jobs found.
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
