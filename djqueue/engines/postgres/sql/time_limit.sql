-- Set the time limit of this transaction's statements.
-- Params: limit text ('2000ms', or what an earlier call returned). Returns: the limit before.
-- The inner select is materialized, so that it reads the old value before the new one is set.
WITH earlier AS MATERIALIZED (SELECT current_setting('statement_timeout') AS value)
SELECT earlier.value, set_config('statement_timeout', %(limit)s, true) FROM earlier
