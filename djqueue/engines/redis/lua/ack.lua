-- needs: outcomes
-- Store the outcomes of claims: finish jobs, or put them back to be retried, snoozed or handed back.
-- ARGV: now (empty: the server's clock); a flat msgpack array of ten for each outcome: id (text), claim, state, started_ago and
-- finished_ago (microseconds back from this write; started_ago false: the function never began), is_spent (false gives the attempt
-- back), result, error, delay (microseconds until due, for the states that wait), note (false: none).
-- Returns: the positions, from 1, of the outcomes that were not accepted: the job does not execute any more, or under another
-- claim, because it was rescued or handed back; the positions of those that need ack_flow.lua.
return {store_outcomes(moment(ARGV[1]), cmsgpack.unpack(ARGV[2]), false)}
