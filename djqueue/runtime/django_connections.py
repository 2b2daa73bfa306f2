"""Django's database connections in the threads that run jobs.

A thread that runs one job after the other keeps its connections, checked as between two requests; a thread that has
nothing to do closes what CONN_MAX_AGE does not allow it to keep. So a busy worker does not connect for every job and
an idle one holds no connection that nobody asked for. After a failed job the connections are closed at once:
nobody knows what it left behind.
"""

from __future__ import annotations

from django.db import close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper


def settle(*, is_clean: bool) -> None:
    """Between two jobs: check this thread's connections, and close those that an error or a job has spoilt."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if is_clean and connection.autocommit and not connection.in_atomic_block and not connection.errors_occurred:
            # The next job checks the connection before its first query, if CONN_HEALTH_CHECKS says so.
            connection.health_check_done = False  # type: ignore[attr-defined]  # missing in the stubs
            connection.queries_log.clear()
        else:
            _discard(connection)


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close a connection, even one that a job left inside a transaction, where Django would only mark it."""
    connection.in_atomic_block = False
    connection.closed_in_transaction = False
    connection.needs_rollback = False
    connection.savepoint_ids = []
    connection.run_on_commit = []
    connection.close()


def release() -> None:
    """Before a thread waits for work: close what may not be kept."""
    close_old_connections()


def close_all() -> None:
    """Before a thread ends."""
    connections.close_all()
