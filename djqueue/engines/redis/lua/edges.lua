-- Read the beginning of the dependencies of a job or a flow. ARGV: up or down, id, how many bytes. Returns: their text, see lib.lua.
return call('GETRANGE', P .. ARGV[1] .. ':' .. ARGV[2], 0, ARGV[3] - 1)
