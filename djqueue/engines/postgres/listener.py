"""Sleep until a job becomes available.

The mark of a sleeper is an advisory lock on the LISTEN connection: it ends with the connection, writes nothing and cannot
bloat a table. ``sql/mark.sql`` and ``sql/wake.sql`` are the two halves of the protocol.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import psycopg
from psycopg.rows import TupleRow

from djqueue.engines.closing import Closing
from djqueue.engines.postgres.connection import connect
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineUnavailable
from djqueue.interrupts import InterruptPipe

logger = logging.getLogger("djqueue.listener")

_BEHIND_MILLISECONDS = 20
"""How long a mark waits for the commits of transactions that are storing jobs. No wake-ups are read meanwhile."""
_RECONNECT_SECONDS = 1.0
_STATEMENT_TIMEOUT_SECONDS = 6.0
"""Short, because its statements do almost no work and the worker's producer thread waits for them."""
_QUIET_SECONDS = 30.0
"""If the server has sent nothing for this long, the listener checks that it still answers."""


class PostgresListener(Closing):
    """``listen=False``: LISTEN does not work on this connection (it goes through a pooler), and ``wait`` only sleeps."""

    def __init__(self, alias: str, *, listen: bool = True, translate: Callable[[str], str] = lambda name: name) -> None:
        self._alias = alias
        self._listen = listen
        self._translate = translate
        self._connection: psycopg.Connection[TupleRow] | None = None
        self._socket = -1
        self._connect_after = 0.0
        self._heard = 0.0
        """Monotonic time of the server's last response or message."""
        self._marked: set[str] = set()
        self._taken: set[str] = set()
        """Names that this listener wanted to mark but another sleeper had marked. Its wake-ups reach this listener too."""
        self._woken: set[str] = set()
        self._pipe = InterruptPipe()
        self._poll = select.poll()
        self._poll.register(self._pipe.reader, select.POLLIN)

    def mark(self, queues: Collection[str]) -> bool:
        # Twice: the end of a session is noticed only when the connection is used.
        for _ in range(2):
            if (connection := self._connected()) is None:
                break
            try:
                if time.monotonic() - self._heard > _QUIET_SECONDS:
                    connection.execute("SELECT 1")
                    self._heard = time.monotonic()
                return self._mark(connection, set(queues) - self._marked)
            except psycopg.Error as error:
                self._lose(error)
        return True  # wake-ups are not possible, so the worker polls

    def _mark(self, connection: psycopg.Connection[TupleRow], missing: set[str]) -> bool:
        """Mark the missing names; return whether all of them were marked before, by this or by another sleeper."""
        if not missing:
            return True
        rows = connection.execute(sql("mark"), {"queues": sorted(missing)}).fetchall()
        self._heard = time.monotonic()
        marked = {queue for queue, is_marked, _ in rows if is_marked}
        taken = {queue for queue, _, is_taken in rows if is_taken}
        # A mark taken over from another sleeper counts as new: for a moment the name had no mark.
        stood = taken == missing and taken <= self._taken
        for queue in sorted(missing - marked - taken):
            # If a storing transaction takes longer to commit, the name stays unmarked and the caller searches again
            # before the next try.
            with suppress(psycopg.errors.LockNotAvailable):
                connection.execute(sql("mark_behind"), {"queue": queue, "milliseconds": _BEHIND_MILLISECONDS})
                marked.add(queue)
        self._marked |= marked
        self._taken = (self._taken - marked) | taken
        return stood

    def unmark(self, queues: Collection[str] | None = None) -> None:
        gone = set(self._marked if queues is None else queues)
        self._taken = set() if queues is None else self._taken - gone
        if not (gone := gone & self._marked):
            return
        self._marked -= gone
        if self._connection is not None:
            try:
                self._connection.execute(sql("unmark"), {"queues": sorted(gone)})
            except psycopg.Error as error:
                self._lose(error)

    def wait(self, timeout: float) -> set[str]:
        connection = self._connection
        if connection is not None:
            self._take(connection)
        ready = {fd for fd, _ in self._poll.poll(0 if self._woken else timeout * 1000)}
        if self._pipe.reader in ready:
            self._pipe.clear()
        if connection is not None and ready - {self._pipe.reader}:
            try:
                connection.pgconn.consume_input()
                self._take(connection)
            except psycopg.OperationalError as error:
                self._lose(error)
        woken, self._woken = self._woken, set()
        return set(map(self._translate, woken))

    def interrupt(self) -> None:
        self._pipe.interrupt()

    def close(self) -> None:
        self._disconnect()
        self._pipe.close()

    def _connected(self) -> psycopg.Connection[TupleRow] | None:
        if self._connection is None and self._listen and time.monotonic() >= self._connect_after:
            try:
                connection = connect(self._alias, "listener", _STATEMENT_TIMEOUT_SECONDS)
                if connection.is_shared:
                    # A pooler: it may deliver what LISTEN asks for to another client's session, and keep the marks there.
                    self._listen = False
                    connection.close()
                    logger.warning("LISTEN is not available behind a connection pooler; polling for jobs.")
                    return None
                row = connection.execute(sql("listen")).fetchone()
                assert row is not None
                connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(row[0])))
                # psycopg passes notifications that arrive with a statement's response only to this handler.
                connection.add_notify_handler(lambda notify: self._hear(notify.pid, notify.payload))
                self._connection = connection
                self._socket = connection.pgconn.socket
                self._poll.register(self._socket, select.POLLIN)
                self._heard = time.monotonic()
            except (EngineUnavailable, psycopg.Error) as error:
                self._lose(error)
        return self._connection

    def _lose(self, error: Exception) -> None:
        logger.warning("Lost the connection for wake-ups; polling until it is restored. (%s)", str(error).strip())
        # No wake-ups have arrived since the loss.
        self._woken |= self._marked | self._taken
        self._marked.clear()
        self._taken.clear()
        # Reconnect at once after a loss, but only after a pause if connecting failed.
        self._connect_after = time.monotonic() + (_RECONNECT_SECONDS if self._connection is None else 0.0)
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._poll.unregister(self._socket)
            self._connection.close()
            self._connection = None

    def _take(self, connection: psycopg.Connection[TupleRow]) -> None:
        while notification := connection.pgconn.notifies():
            self._hear(notification.be_pid, notification.extra.decode())

    def _hear(self, pid: int, payload: str) -> None:
        # Ignore this listener's own offer of a mark that it has given up: it is meant for other sleepers.
        if self._connection is None or pid != self._connection.info.backend_pid:
            self._woken.add(payload)
