-- needs: outcomes ends
-- Store the outcomes of claims, also of jobs of flows and of jobs that others wait for.
-- ARGV: as ack.lua. Returns: the positions, from 1, of the outcomes that were not accepted; 1 if settle.lua has work.
-- This is a separate script because creating the functions that it does not call would cost a single failed job a fifth more.
local at = moment(ARGV[1])
local refused = store_outcomes(at, cmsgpack.unpack(ARGV[2]), true)
return {refused, take_ends(at)}
