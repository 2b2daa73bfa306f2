-- Undo what was done since savepoint.sql, and give its locks back.
ROLLBACK TO SAVEPOINT djqueue_insertion
