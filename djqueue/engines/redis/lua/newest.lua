-- needs: waiting walk
-- Read jobs by a filter, the highest ids first: one page of a scan.
-- ARGV: now, filter (see walk.lua), the id to start below, how many jobs to examine, how many to find, a msgpack array of the
-- ids to examine (empty: all).
-- Returns: the id to continue below (empty: the scan is complete), and for each job found its id, payload, run, proof of its claim,
-- and when it is due; false for each that does not exist.
local at = moment(ARGV[1])
local is_wanted, most = filter_of(ARGV[2], at), tonumber(ARGV[5])
local ids = ARGV[6] ~= '' and cmsgpack.unpack(ARGV[6]) or ids_before(tonumber(ARGV[3]), tonumber(ARGV[4]))
local found, last = {}, #ids == tonumber(ARGV[4]) and ids[#ids] or ''
for number, job in ipairs(look_at(ids)) do
    if job and is_wanted(job) then
        local payload, run = unpack(call('MGET', P .. 'job:' .. job.id, P .. 'run:' .. job.id))
        payload = payload_of(job.id, payload)
        found[#found + 1] = {job.id, payload, run, job.proof, call('ZSCORE', P .. 'due', ranked(job.id))}
        if #found == most then
            last = ids[number]
            break
        end
    end
end
return {last, found}
