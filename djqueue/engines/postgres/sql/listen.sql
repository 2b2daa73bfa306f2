-- Name the channel of this installation: one per schema, so that two in one database do not wake each other.
SELECT 'djqueue:' || current_schema() AS channel
