"""Sleep until somebody makes a job available.

The mark of sleep is an advisory lock on the LISTEN connection: it dies with its owner, writes nothing and cannot bloat.
See ``sql/mark.sql`` and ``sql/wake.sql`` for the two halves of the protocol.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import time
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType
from typing import Self

import psycopg
from psycopg.rows import TupleRow

from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineUnavailable

logger = logging.getLogger("djqueue.listener")

_MARK_TRIES = 5
_BEHIND_MILLISECONDS = 20
"""How long a mark waits for the commits of those who store jobs at this moment. It hears nothing meanwhile."""
_UNMARKED_SECONDS = 0.05
"""Where such a commit takes longer than all tries, nobody may wake us: a sleep is no longer than this."""
_RECONNECT_SECONDS = 1.0
_STATEMENT_TIMEOUT_SECONDS = 6.0
"""None of its statements does any work, and the producer waits for them."""
_QUIET_SECONDS = 30.0
"""After so long without a word from the server the listener asks whether it is still there."""


class PostgresListener:
    """``listen=False``: there is no LISTEN here (a pooler in between); ``wait`` is only a sleep."""

    def __init__(self, alias: str, *, listen: bool = True) -> None:
        self._alias = alias
        self._listen = listen
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._connect_after = 0.0
        self._heard = 0.0
        """When the server last said something."""
        self._marked: set[str] = set()
        self._unmarked: set[str] = set()
        """Queues that could not be marked, though nobody else sleeps on them."""
        self._woken: set[str] = set()
        self._is_releasing = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def mark(self, queues: Collection[str]) -> None:
        """Say that somebody is about to sleep on these queues. Queues marked already stay so."""
        # Twice: a session that has ended meanwhile is noticed only when it is used.
        for _ in range(2):
            if (connection := self._connected()) is None:
                return
            try:
                self._finish_release()
                if time.monotonic() - self._heard > _QUIET_SECONDS:
                    connection.execute("SELECT 1")
                    self._heard = time.monotonic()
                self._unmarked -= set(queues)
                self._unmarked |= self._mark(connection, set(queues) - self._marked)
                return
            except psycopg.Error as error:
                self._lose(error)

    def _mark(self, connection: psycopg.Connection[TupleRow], missing: set[str]) -> set[str]:
        """Mark what is missing and not taken; return what neither could be said of."""
        for _ in range(_MARK_TRIES):
            if not missing:
                break
            rows = connection.execute(sql("mark"), {"queues": sorted(missing)}).fetchall()
            self._heard = time.monotonic()
            self._marked.update(queue for queue, is_marked, _ in rows if is_marked)
            missing = {queue for queue, is_marked, is_taken in rows if not (is_marked or is_taken)}
            for queue in sorted(missing):
                with suppress(psycopg.errors.LockNotAvailable):
                    connection.execute(sql("mark_behind"), {"queue": queue, "milliseconds": _BEHIND_MILLISECONDS})
                    self._marked.add(queue)
            missing -= self._marked
        return missing

    def unmark(self) -> None:
        """Say that nobody sleeps here any more.

        Sent without waiting for the answer: the fetch that follows need not wait for it, and a mark that lives a
        moment longer costs a notification that nobody needed.
        """
        self._unmarked.clear()
        if self._marked and self._connection is not None:
            self._marked.clear()
            try:
                self._finish_release()
                self._connection.pgconn.send_query(sql("unmark").encode())
                self._connection.pgconn.flush()
                self._is_releasing = True
            except psycopg.Error as error:
                self._lose(error)

    def wait(self, timeout: float) -> set[str]:
        """Sleep until woken, interrupted or ``timeout`` seconds passed; return the queues that were named."""
        connection = self._connection
        if self._unmarked:
            timeout = min(timeout, _UNMARKED_SECONDS)
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            if connection is not None:
                self._take(connection)
                selector.register(connection.pgconn.socket, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(0 if self._woken else timeout)}
        if self._reader in ready:
            self._drain()
        if connection is not None and ready - {self._reader}:
            try:
                connection.pgconn.consume_input()
                self._finish_release(wait=False)
                self._take(connection)
            except psycopg.OperationalError as error:
                self._lose(error)
        woken, self._woken = self._woken, set()
        return woken

    def interrupt(self) -> None:
        """End the current or next ``wait``; for other threads and signal handlers."""
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            pass  # the pipe is full of interruptions already
        except OSError:
            pass  # closed: nobody waits any more

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._reader >= 0:
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1

    def _connected(self) -> psycopg.Connection[TupleRow] | None:
        if self._connection is None and self._listen and time.monotonic() >= self._connect_after:
            try:
                connection = connect(self._alias, "listener", _STATEMENT_TIMEOUT_SECONDS)
                row = connection.execute(sql("listen")).fetchone()
                assert row is not None
                if row[1] != connection.info.backend_pid:
                    # A pooler in between: what LISTEN asks for, it may give to somebody else's session, and the marks stay there.
                    self._listen = False
                    connection.close()
                    logger.warning("There is a pooler before the database: LISTEN cannot be used, jobs are polled for.")
                    return None
                connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(row[0])))
                # What arrives along with the answer to a statement, psycopg hands to this and nowhere else.
                connection.add_notify_handler(lambda notify: self._woken.add(notify.payload))
                self._connection = connection
                self._heard = time.monotonic()
            except (EngineUnavailable, psycopg.Error) as error:
                self._lose(error)
        return self._connection

    def _lose(self, error: Exception) -> None:
        logger.warning("The connection for wake-ups is gone; polling until it is back. (%s)", str(error).strip())
        self._marked.clear()
        self._unmarked.clear()
        self._is_releasing = False
        # At once after a loss, with a pause after a failure to connect.
        self._connect_after = time.monotonic() + (_RECONNECT_SECONDS if self._connection is None else 0.0)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _finish_release(self, *, wait: bool = True) -> None:
        """Take the answer to the statement that ``unmark`` has sent."""
        connection = self._connection
        while self._is_releasing and connection is not None:
            if not connection.pgconn.is_busy():
                self._is_releasing = connection.pgconn.get_result() is not None
            elif not wait:
                return
            elif select.select([connection.pgconn.socket], [], [], _STATEMENT_TIMEOUT_SECONDS)[0]:
                connection.pgconn.consume_input()
            else:
                raise psycopg.OperationalError(f"no answer within {_STATEMENT_TIMEOUT_SECONDS:g} seconds")

    def _take(self, connection: psycopg.Connection[TupleRow]) -> None:
        while notification := connection.pgconn.notifies():
            self._woken.add(notification.extra.decode())

    def _drain(self) -> None:
        try:
            while os.read(self._reader, 4096):
                pass
        except BlockingIOError:
            pass
