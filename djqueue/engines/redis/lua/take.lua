-- Take up to a number of available jobs of one queue out of the store, for a queue whose jobs run at most once.
-- ARGV: queue, limit, worker, now (empty: the server's clock). Returns: as fetch.lua, which see.
-- From here on the job is nowhere but in ids, by which a second push of it is known (insert.lua), until record.lua writes its history: a worker that dies meanwhile takes it along, and nobody can
-- run it again. Its unique key is given up.
local queue, worker = ARGV[1], ARGV[3]
if not may_fetch(queue, worker) then
    return {}
end
local found = call('ZPOPMIN', P .. 'ready:' .. queue, ARGV[2])
if #found == 0 then
    return {}
end
local ids, jobs_at, runs_at = {}, {}, {}
for place = 1, #found, 2 do
    local id = found[place]
    ids[#ids + 1] = id
    jobs_at[#jobs_at + 1] = P .. 'job:' .. id
    runs_at[#runs_at + 1] = P .. 'run:' .. id
end
local payloads, runs = call('MGET', unpack(jobs_at)), call('MGET', unpack(runs_at))
local at = moment(ARGV[4])
for number, id in ipairs(ids) do
    local key = payloads[number] and select(8, head(payloads[number]))
    if key then
        free_key(id, key)
    end
end
call('DEL', unpack(jobs_at))
call('DEL', unpack(runs_at))
flush(at)
return {at, ids, payloads, runs}
