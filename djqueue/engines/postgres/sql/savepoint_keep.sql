-- Keep what was done since savepoint.sql.
RELEASE SAVEPOINT djqueue_insertion
