"""Reuse database sessions between jobs where ``CONN_MAX_AGE`` is 0.

To connect takes milliseconds of the server, so a busy thread sends ``DISCARD ALL`` instead, which undoes everything that
a session can hold (settings, role, temporary tables, advisory locks, LISTEN, prepared statements), and hands the session
out again when Django asks for a new connection. Django then does what it does with a new one: time zone, role,
``connection_created``.
"""

from __future__ import annotations

import select
import threading
import time
from contextlib import suppress
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.adapters.django import forget_transaction, is_opened_by_django

with suppress(ImportError):  # only sessions of PostgreSQL are kept
    import psycopg

    from djqueue.adapters.psycopg import handler_counts

_KEPT_SECONDS = 60.0
"""Maximum age of a kept session: a pooled role, a fail-over or a grown cache gets its new connection."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.keepers: list[_Keeper] = []


_local = _Local()


def keep(wrapper: BaseDatabaseWrapper) -> bool:
    """Keep a session instead of closing it; return False where it has to be closed."""
    keeper = wrapper.__dict__.get("get_new_connection")
    if isinstance(keeper, _Keeper):
        return keeper.keep()
    if keeper is None and _is_djangos(wrapper):
        # From the next connection on: the keeper has to see how a session is opened.
        keeper = wrapper.__dict__["get_new_connection"] = _Keeper(wrapper)
        _local.keepers.append(keeper)
    return False


def close_kept() -> None:
    """Close the sessions that this thread keeps."""
    for keeper in _local.keepers:
        keeper.close()


class _Keeper:
    """Replaces ``get_new_connection`` of one of Django's connections, and keeps a reset session for its next call."""

    def __init__(self, wrapper: BaseDatabaseWrapper) -> None:
        self._wrapper = wrapper
        self._raw: Any = None
        """The session that was opened here last."""
        self._is_kept = False
        self._params: Any = None
        self._until = 0.0
        self._is_direct: bool | None = None
        self._state: tuple[Any, ...] = ()

    def __call__(self, params: dict[str, Any]) -> Any:
        if self._is_kept:
            if params == self._params and _is_quiet(self._raw):
                self._is_kept = False
                return self._raw
            self.close()
        self._raw = raw = type(self._wrapper).get_new_connection(self._wrapper, params)
        self._params = params
        self._until = time.monotonic() + _KEPT_SECONDS
        self._is_direct = None
        self._state = _state_of(raw)
        return raw

    def keep(self) -> bool:
        """Reset the open session and take it from Django; return False if that cannot be done."""
        raw = self._wrapper.connection
        if raw is not self._raw or time.monotonic() >= self._until or _state_of(raw) != self._state:
            return False
        try:
            cursor = psycopg.Cursor(raw)
            if self._is_direct is None:
                # Behind a pooler the reset could reach another session, and to connect costs little there.
                row = cursor.execute("SELECT pg_backend_pid()").fetchone()
                self._is_direct = row is not None and row[0] == raw.info.backend_pid
            if not self._is_direct:
                return False
            cursor.execute("DISCARD ALL")
            while raw.pgconn.notifies():
                pass
        except psycopg.Error:
            return False
        self._is_kept = True
        self._wrapper.connection = None
        forget_transaction(self._wrapper)
        return True

    def close(self) -> None:
        if self._is_kept:
            self._is_kept = False
            self._raw.close()
        self._raw = None


def _is_djangos(wrapper: BaseDatabaseWrapper) -> bool:
    """Return whether only Django's own code opens and closes the session, without its pool."""
    return (
        wrapper.vendor == "postgresql"
        and wrapper.settings_dict["CONN_MAX_AGE"] == 0
        and not wrapper.settings_dict["OPTIONS"].get("pool")
        and is_opened_by_django(wrapper)
        and isinstance(wrapper.connection, psycopg.Connection)
    )


def _state_of(raw: Any) -> tuple[Any, ...]:
    """Return what a task can change of psycopg's object and ``DISCARD ALL`` does not undo."""
    return (
        raw.isolation_level,
        raw.read_only,
        raw.deferrable,
        raw.row_factory,
        raw.cursor_factory,
        raw.prepare_threshold,
        handler_counts(raw),
    )


def _is_quiet(raw: Any) -> bool:
    """Return whether the server has sent nothing since the reset: a closed session has something to read."""
    if raw.closed:
        return False
    poll = select.poll()
    poll.register(raw.pgconn.socket, select.POLLIN)
    return not poll.poll(0)
