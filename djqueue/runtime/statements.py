"""Cancel the SQL statements of a task at its deadline, from another thread.

djqueue sets no ``statement_timeout`` on a task's sessions: a cancel request also works behind a pooler, and no rollback
undoes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from djqueue.runtime.thread_state import current
from djqueue.service import growing_pauses

try:
    from psycopg.pq import TransactionStatus
except ImportError:
    # A project whose jobs are in Redis and whose database is not PostgreSQL needs no libpq.
    _ACTIVE: int | None = None
else:
    _ACTIVE = TransactionStatus.ACTIVE

_CANCEL_TIMEOUT_SECONDS = 5.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 0.5


class Statements:
    """The SQL statements of one execution."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[BaseDatabaseWrapper] = []
        self._shared: list[BaseDatabaseWrapper] = []
        """Connections of shared threads, while these work for the execution."""
        self._is_over = False
        self.is_cancelling = False
        """Whether statements may have been cancelled."""

    def cancel(self) -> None:
        """Start to cancel every statement until the execution is over; from any thread, without waiting."""
        with self._lock:
            if self.is_cancelling or self._is_over:
                return
            self.is_cancelling = True
        threading.Thread(target=self._cancel_repeatedly, name="djqueue-cancel", daemon=True).start()

    def watch(self, connection: BaseDatabaseWrapper) -> None:
        with self._lock:
            connections = self._shared if current.is_shared else self._connections
            if connection not in connections:
                connections.append(connection)

    def forget(self, connection: BaseDatabaseWrapper) -> bool:
        """Stop to watch a shared thread's connection; return whether its statements may have been cancelled."""
        with self._lock:
            if connection in self._shared:
                self._shared.remove(connection)
            return self.is_cancelling

    def close(self) -> bool:
        """Stop to watch the execution's own connections; return whether their statements may have been cancelled."""
        with self._lock:
            self._is_over = True
            self._connections.clear()
            return self.is_cancelling

    def _cancel_repeatedly(self) -> None:
        for pause in growing_pauses(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS):
            with self._lock:
                active = [connection.connection for connection in (*self._connections, *self._shared)]
            for raw in active:
                if _is_active(raw):
                    # The statement may have ended meanwhile, or the server cannot be reached.
                    with suppress(Exception):
                        raw.cancel_safe(timeout=_CANCEL_TIMEOUT_SECONDS) if hasattr(
                            raw, "cancel_safe"
                        ) else raw.cancel()
            time.sleep(pause)  # no event tells that the next statement begins
            if self._is_over and not self._shared:
                return


_statements: ContextVar[Statements | None] = ContextVar("djqueue_statements", default=None)
"""Statements of the execution whose code runs. Threads that asyncio and asgiref lend to a task inherit it."""


@contextmanager
def cancellable() -> Iterator[Statements]:
    """Allow the statements of the block, on Django's PostgreSQL connections, to be cancelled from another thread."""
    statements = Statements()
    token = _statements.set(statements)
    watch_all(statements)
    try:
        yield statements
    finally:
        _statements.reset(token)
        if statements.close():
            current.was_cancelled = True


def of_current_context() -> Statements | None:
    return _statements.get()


def watch_all(statements: Statements | None) -> None:
    """Watch every open connection of this thread."""
    if statements is not None and current.has_connected:
        for connection in connections.all(initialized_only=True):
            statements.watch(connection)


def _is_active(raw: Any) -> bool:
    status = getattr(getattr(raw, "info", None), "transaction_status", None)
    return status is not None and status == _ACTIVE


def _watch_new_connection(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    statements = _statements.get()
    if statements is not None:
        statements.watch(connection)


connection_created.connect(_watch_new_connection)
