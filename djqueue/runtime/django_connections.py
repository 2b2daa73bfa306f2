"""Django's database connections in the threads that run jobs.

A thread that runs one job after the other keeps its connections, checked as between two requests; a thread that has
nothing to do closes what CONN_MAX_AGE does not allow it to keep. So a busy worker does not connect for every job and
an idle one holds no connection that nobody asked for. After a failed job the connections are closed at once:
nobody knows what it left behind.
"""

from __future__ import annotations

from django.db import close_old_connections, connections, reset_queries


def settle(*, is_clean: bool) -> None:
    """Between two jobs: check this thread's connections, and close those that an error or a job has spoilt."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if not is_clean or connection.in_atomic_block or not connection.get_autocommit() or connection.errors_occurred:
            connection.in_atomic_block and _leave_atomic_block(connection)
            connection.close()
        else:
            connection.health_check_done = False
            if connection.queries_logged:
                reset_queries()


def release() -> None:
    """Before a thread waits for work: close what may not be kept."""
    close_old_connections()


def close_all() -> None:
    """Before a thread ends."""
    connections.close_all()
