-- Shared by the scripts of the crontab. Needs waiting.lua and insertion.lua. An entry is a hash `cron:entry:<id>`; times are
-- microseconds, '' is none.
--   cron                 name → id
--   cron:ids             the last id of an entry or tick
--   cron:due             active entries by their next time; 0: not planned yet. Never @reboot entries, which have none
--   cron:ticks:<entry>   its history, by the tick's id: msgpack of nominal, at, outcome, reason, job, missed_from, by
--   cron:ticks           "entry:tick" of all entries, by the time of the tick: the index for pruning
--   schedulers           id → msgpack of name, the entries of its code, the times of its first and last declaration
local RECENT = 100

local function entry_key(id)
    return P .. 'cron:entry:' .. id
end

local function read_entry(id)
    local flat, entry = call('HGETALL', entry_key(id)), {}
    for place = 1, #flat, 2 do
        entry[flat[place]] = flat[place + 1]
    end
    return entry
end

local function is_active(entry)
    return entry.paused_at == '' and entry.disabled_at == '' and entry.finished_at == ''
end

local function place_entry(id)
    -- Add an entry to the index of cron_due.lua, or remove it from there.
    local entry = read_entry(id)
    if entry.revision and is_active(entry) and entry.is_reboot == '' then
        call('ZADD', P .. 'cron:due', entry.next_at == '' and '0' or entry.next_at, id)
    else
        call('ZREM', P .. 'cron:due', id)
    end
end

local function living_jobs(id)
    -- Examine the last hundred jobs of the entry: an older job that is still live is stuck, not an overlap.
    local ids = {}
    for _, line in ipairs(call('ZREVRANGE', P .. 'cron:ticks:' .. id, 0, RECENT - 1)) do
        local job = cmsgpack.unpack(line)[6]
        if job ~= '' then
            ids[#ids + 1] = job
        end
    end
    local living = {}
    for _, job in ipairs(look_at(ids)) do
        if job and job.state < COMPLETED then
            living[#living + 1] = job
        end
    end
    return living
end

local function insert_scheduled(text, at, rule)
    -- Insert a job of an entry by a rule, see insertion.lua. Returns its id ('': none) and why there is none.
    local place = next_places(1)
    local id, _, _, is_duplicate = insert_job(cmsgpack.unpack(text), place, place, at, cmsgpack.unpack(rule))
    settle(at)
    return is_duplicate and '' or id, is_duplicate and 'duplicate' or ''
end

local function write_tick(id, at, nominal, outcome, reason, job, missed_from, by)
    local tick = text_of(call('INCR', P .. 'cron:ids'))
    call('ZADD', P .. 'cron:ticks:' .. id, tick, pack({tick, nominal, text_of(at), outcome, reason, job, missed_from, by}))
    call('ZADD', P .. 'cron:ticks', text_of(at), id .. ':' .. tick)
end
