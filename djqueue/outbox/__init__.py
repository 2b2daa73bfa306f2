"""Pass jobs from a transaction to a store that is not part of it."""
