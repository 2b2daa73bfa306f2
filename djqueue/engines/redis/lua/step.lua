-- Store the value of a finished step of a job. ARGV: id, claim, name, value (JSON).
-- Returns: whether the job still executes under this claim.
go_on_when_full()
local id, text = ARGV[1], call('HGET', P .. 'executing', ARGV[1])
if not text then
    return 0
end
local claim, attempt, attempted_at, worker, queue, score, flags = proof(text)
if claim ~= tonumber(ARGV[2]) then
    return 0
end
local run = has(flags, HAS_RUN) and read_run(value_at(P .. 'run:' .. id), AVAILABLE) or new_run(AVAILABLE)
local steps = run[STEPS] or {}
local place = #steps + 1
for number = 1, #steps, 2 do
    place = steps[number] == ARGV[3] and number or place
end
steps[place], steps[place + 1] = ARGV[3], ARGV[4]
put(run, STEPS, steps)
keep_run(id, run)
if not has(flags, HAS_RUN) then
    flags = flags + HAS_RUN
    call('HSET', P .. 'executing', id, '\151' .. pack(claim, attempt, attempted_at, worker, queue, score, flags))
end
flush(clock())
return 1
