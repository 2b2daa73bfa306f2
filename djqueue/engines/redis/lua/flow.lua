-- Read flows. ARGV: their ids. Returns: for each a flat list of its fields, see ends.lua; empty if there is none.
local found = {}
for number, id in ipairs(ARGV) do
    found[number] = call('HGETALL', P .. 'flow:' .. id)
end
return found
