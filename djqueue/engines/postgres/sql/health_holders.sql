-- List what keeps VACUUM from removing dead rows, the oldest first: sessions, replication slots, prepared transactions.
-- Params: none. Returns: kind, name, age_seconds (null: not known), age_transactions.
-- Only sessions of this database, or those that block it for all databases (a standby with hot_standby_feedback), without this one.
SELECT * FROM (
    SELECT
        'session' AS kind,
        format('pid %%s, %%s, user %%s, %%s', pid, COALESCE(NULLIF(application_name, ''), 'no application name'), usename, state) AS name,
        extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age_seconds,
        age(COALESCE(backend_xmin, backend_xid))::int AS age_transactions
    FROM pg_stat_activity
    WHERE
        COALESCE(backend_xmin, backend_xid) IS NOT NULL AND pid <> pg_backend_pid()
        AND (datname = current_database() OR backend_type = 'walsender') AND backend_type NOT LIKE 'autovacuum%%'
    UNION ALL
    SELECT
        'replication slot', format('%%s%%s', slot_name, CASE WHEN active THEN '' ELSE ', inactive' END), NULL,
        age(COALESCE(xmin, catalog_xmin))::int
    FROM pg_replication_slots
    WHERE xmin IS NOT NULL
    UNION ALL
    SELECT
        'prepared transaction', format('%%s, owner %%s', gid, owner), extract(epoch FROM clock_timestamp() - prepared)::float8,
        age(transaction)::int
    FROM pg_prepared_xacts
    WHERE database = current_database()
) AS holder
ORDER BY age_transactions DESC, age_seconds DESC NULLS LAST
LIMIT 5
