-- Undo what was done since savepoint.sql, and release its locks.
ROLLBACK TO SAVEPOINT djqueue_insertion
