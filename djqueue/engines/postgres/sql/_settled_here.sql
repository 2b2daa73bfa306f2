-- Suspended jobs of flows are left to _wished.sql, except where its events take effect.
(%(is_settling)s::bool OR state <> 'suspended' OR pending IS NULL) AND
