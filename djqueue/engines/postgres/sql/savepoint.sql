-- Begin a part of the transaction of a tick that may be undone.
SAVEPOINT djqueue_insertion
