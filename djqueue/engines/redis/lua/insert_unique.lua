-- needs: waiting insertion
-- Store jobs that may have unique keys, or return the jobs that hold their keys, as if they were inserted one after the other.
-- ARGV: now (empty: the server's clock); the jobs, nine values for each, and ids, as in insert.lua; a msgpack array of the rule:
-- see insertion.lua.
-- Returns: for each job id (text), state, inserted_at, 1 for a duplicate.
local at = moment(ARGV[1])
local jobs = cmsgpack.unpack(ARGV[2])
local ids = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3])
local rule = cmsgpack.unpack(ARGV[4])
local count = #jobs / 9
-- Ids are taken even for duplicates: the first write must be one that a server without memory refuses before anything is done.
local first = next_places(count)
if ids then
    pass(ids)
end
local answer = {}
for number = 1, count do
    local id, order = ids and ids[number] or first + number - 1, first + number - 1
    local text, state, inserted_at, is_duplicate
    if ids and is_marked(id) then
        local job = look_at_one(text_of(id), at)
        text, state, inserted_at = text_of(id), job and job.state or AVAILABLE, job and job.inserted_at or at
    else
        text, state, inserted_at, is_duplicate = insert_job({unpack(jobs, number * 9 - 8, number * 9)}, id, order, at, rule)
    end
    answer[#answer + 1] = text
    answer[#answer + 1] = state
    answer[#answer + 1] = inserted_at
    answer[#answer + 1] = is_duplicate and 1 or 0
end
settle(at)
return answer
