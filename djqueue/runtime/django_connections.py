"""Django's database connections in the threads that run jobs.

A thread that runs one job after the other keeps its connections, checked as between two requests; a thread that has
nothing to do closes what CONN_MAX_AGE does not allow it to keep. So a busy worker does not connect for every job and
an idle one holds no connection that nobody asked for. After a failed job the connections are closed at once:
nobody knows what it left behind.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created


def settle(*, is_clean: bool) -> None:
    """Between two jobs: check this thread's connections, and close those that an error or a job has spoilt."""
    if not _active.has_connected:
        return  # to ask Django for the connections of this thread takes a tenth of a short job's time
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


@contextmanager
def limit_statements(deadline: float | None) -> Iterator[None]:
    """End every SQL statement of this thread at the deadline (``time.monotonic()``; None: no limit)."""
    if deadline is None:
        yield
        return
    limit = _StatementLimit(deadline)
    _active.limit = limit
    for connection in connections.all(initialized_only=True):
        connection.execute_wrappers.append(limit)
    try:
        yield
    finally:
        _active.limit = None
        for connection in connections.all(initialized_only=True):
            if limit in connection.execute_wrappers:
                connection.execute_wrappers.remove(limit)
            if connection.alias in limit.told:
                limit.forget(connection)


class _StatementLimit:
    """An execute wrapper that tells PostgreSQL how much time is left: once, and again when half of it has gone."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.told: dict[str, float] = {}

    def __call__(self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        connection = context["connection"]
        if connection.vendor == "postgresql":
            left = max(0.001, self.deadline - time.monotonic())
            if left < self.told.get(connection.alias, math.inf) / 2:
                self.told[connection.alias] = left
                # Rounded up: a statement that ends before the deadline would be an error of its own, and no timeout.
                self._set(connection, str(math.ceil(left * 1000)))
        return execute(sql, params, many, context)

    def forget(self, connection: BaseDatabaseWrapper) -> None:
        """Take the limit from a connection that outlives the job."""
        if connection.connection is not None:
            self._set(connection, "DEFAULT")

    @staticmethod
    def _set(connection: BaseDatabaseWrapper, value: str) -> None:
        # Not through Django's cursor, which would call the wrapper again. In a failed transaction the statement fails
        # too, and so will the one that follows it.
        with suppress(Exception), connection.connection.cursor() as cursor:
            cursor.execute(f"SET statement_timeout = {value}")


class _Active(threading.local):
    limit: _StatementLimit | None = None
    has_connected = False
    """Whether a connection was ever opened in this thread."""


_active = _Active()


def _note_new_connection(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    _active.has_connected = True
    limit = _active.limit
    if limit is not None and limit not in connection.execute_wrappers:
        connection.execute_wrappers.append(limit)
    elif limit is not None:
        limit.told.pop(connection.alias, None)  # connected anew: nobody told it yet


connection_created.connect(_note_new_connection)


def release() -> None:
    """Before a thread waits for work: close what may not be kept."""
    close_old_connections()


def close_all() -> None:
    """Before a thread ends."""
    connections.close_all()
