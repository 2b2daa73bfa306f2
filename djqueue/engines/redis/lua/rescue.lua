-- needs: ends
-- Take jobs back from dead workers: one page of a scan of all executing jobs.
-- ARGV: cursor (0 to begin with); a msgpack array of the workers (empty: all that are not registered); ran, a msgpack map of id to
-- claim of the jobs whose function was called (empty: unknown, all); kept, such a map of claims to leave alone; reason; limit; now
-- (empty: the server's clock); 1: the proofs say which functions were called (note_begun.lua), and the other jobs are put back
-- with a mark, because it is not known whether theirs were.
-- Returns: the cursor of the next page (0: this was the last), how many were requeued, discarded and cancelled, and the queues that
-- got jobs.
-- A job whose function was called spends its attempt and gets an error with the reason. Without an attempt left it is discarded, so
-- that a job that kills its worker does not run for ever. A job that was only claimed is put back unchanged. The claim is not
-- lowered, so a late ack of the dead worker is stale. A job with a cancel request is not put back but cancelled, whether it ran or
-- not.
local at, limit = moment(ARGV[7]), tonumber(ARGV[6])
local as_noted = ARGV[8] == '1'
local ran = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3])
local kept = cmsgpack.unpack(ARGV[4])
local wanted, known = {}, {}
if ARGV[2] ~= '' then
    for _, worker in ipairs(cmsgpack.unpack(ARGV[2])) do
        wanted[worker] = true
    end
else
    for _, worker in ipairs(call('HKEYS', P .. 'workers')) do
        known[worker] = true
    end
end
local page = call('HSCAN', P .. 'executing', ARGV[1], 'COUNT', 500)
local lost, keys = {}, {}
for place = 1, #page[2], 2 do
    local id, text = page[2][place], page[2][place + 1]
    local claim, _, _, worker = proof(text)
    if #lost < limit and (wanted[worker] or ARGV[2] == '' and not known[worker]) and kept[id] ~= claim then
        lost[#lost + 1] = {id, text}
        keys[#keys + 1] = P .. 'run:' .. id
    end
end
local requeued, discarded, cancelled, queues, names = 0, 0, 0, {}, {}
local runs = #keys > 0 and call('MGET', unpack(keys))
for number, entry in ipairs(lost) do
    local id = entry[1]
    local claim, attempt, attempted_at, worker, queue, score, flags = proof(entry[2])
    local run = read_run(runs[number], AVAILABLE) or new_run(AVAILABLE)
    local has_run = not ran or ran[id] == claim
    if as_noted then
        has_run = has(flags, HAS_BEGUN)
    end
    released[#released + 1] = id
    if has_run then
        append_error(run, {'WorkerLost', attempt, at, worker, ARGV[5]})
    end
    run[ATTEMPT] = has_run and attempt or attempt - 1
    run[CLAIM], run[WORKER], run[ATTEMPTED_AT] = claim, worker, attempted_at
    if has(flags, IS_CANCEL_REQUESTED) then
        run[STATE], run[FINISHED_AT] = CANCELLED, at
        note_cancel(run, at)
        cancelled = cancelled + 1
        finish(id, run, flags)
    elseif has_run and attempt >= (run[MAX_ATTEMPTS] or select(7, head_of(id)) or 0) then
        run[STATE], run[FINISHED_AT] = DISCARDED, at
        discarded = discarded + 1
        finish(id, run, flags)
    else
        run[STATE] = AVAILABLE
        if as_noted and not has_run then
            append(run, NOTES, '{"lost":' .. text_of(claim) .. '}')
        end
        requeued = requeued + 1
        keep_run(id, run)
        make_ready(id, queue, score)
        if not queues[queue] then
            queues[queue] = true
            names[#names + 1] = queue
        end
    end
end
flush(at)
if #ended > 0 then
    take_ends(at)
end
return {page[1], requeued, discarded, cancelled, names}
