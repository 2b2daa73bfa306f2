-- Report how much of the tables is dead rows. Estimates and sizes only: nothing is counted.
-- Params: none. Returns: one row: dead_rows, live_rows, vacuumed_seconds, is_autovacuum_on, table_bytes, fetch_index_bytes,
-- history_rows, history_bytes, notification_usage.
SELECT
    live.n_dead_tup AS dead_rows,
    live.n_live_tup AS live_rows,
    extract(epoch FROM clock_timestamp() - GREATEST(live.last_vacuum, live.last_autovacuum))::float8 AS vacuumed_seconds,
    current_setting('autovacuum')::bool AND COALESCE(NOT 'autovacuum_enabled=false' = ANY (class.reloptions), true) AS is_autovacuum_on,
    pg_table_size(live.relid) AS table_bytes,
    pg_relation_size('djqueue_job_fetch'::regclass) AS fetch_index_bytes,
    history.n_live_tup AS history_rows,
    pg_total_relation_size(history.relid) AS history_bytes,
    pg_notification_queue_usage() AS notification_usage
FROM pg_stat_user_tables AS live
JOIN pg_class AS class ON class.oid = live.relid
JOIN pg_stat_user_tables AS history ON history.relid = 'djqueue_finishedjob'::regclass
WHERE live.relid = 'djqueue_job'::regclass
