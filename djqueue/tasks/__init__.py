"""What a project decorates and gets back: tasks, their options, results, unique keys and backoffs."""
