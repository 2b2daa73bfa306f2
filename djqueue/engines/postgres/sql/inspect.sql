-- Report the version of the server.
-- Params: none. Returns: one row: version text, version_number int.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_number
