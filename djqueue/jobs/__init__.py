"""The nouns that cross the seam between djqueue and a store: jobs, their states, texts, times and health."""
