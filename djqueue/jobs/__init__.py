"""The data that djqueue and a store exchange: jobs, their states, texts, times and health."""
