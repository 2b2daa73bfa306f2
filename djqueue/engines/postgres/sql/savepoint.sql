-- Begin what may be undone within the transaction of a tick.
SAVEPOINT djqueue_insertion
