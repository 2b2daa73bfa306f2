-- Nobody sleeps on this connection any more.
SELECT pg_advisory_unlock_all()
