-- Name the channel of this installation: one per schema, so that two in one database do not wake each other.
-- Hashed, because pg_notify refuses a name of 64 bytes and a schema's name alone may have 63.
-- Returns: channel.
SELECT 'djqueue:' || md5(current_schema()) AS channel
