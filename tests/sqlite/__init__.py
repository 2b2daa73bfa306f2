"""A project without PostgreSQL: its data in SQLite, its jobs in Redis, and psycopg not installed."""
