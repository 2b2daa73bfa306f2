"""How long a worker may go without a good heartbeat, and what follows after each time. Every process uses these values.

They depend on each other: a worker has to stop before another process may take it for dead, whatever their clocks say.
"""

BEAT_SECONDS = 2.0
"""Between two beats."""
STOP_FETCHING_SECONDS = 6.0
"""A worker fetches nothing more."""
DOUBTFUL_SECONDS = 8.0
"""A worker starts nothing more and reports an outcome only if the store accepts it; its supervisor reports that it is unhealthy."""
SILENT_SECONDS = 10.0
"""The leader rescues the worker's jobs."""
AFTERMATH_SECONDS = 10.0
"""After that rescue, the leader looks once more for claims that the dead worker had sent, before it deletes its row."""
REPORTED_SILENT_SECONDS = 15.0
"""``queuehealth`` and the admin report the worker as silent: by now its rescue should have begun."""
