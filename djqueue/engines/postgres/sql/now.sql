-- Read the time.
-- Params: none. Returns: one timestamptz, of this statement and not of the transaction's begin.
SELECT clock_timestamp() AS now
