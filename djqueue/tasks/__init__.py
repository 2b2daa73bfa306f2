"""Tasks, their options, results, unique keys and backoffs."""
