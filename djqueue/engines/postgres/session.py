"""A connection of djqueue's own that runs statements. It opens when needed, reopens after a loss and translates errors."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import psycopg
from psycopg.rows import TupleRow

from djqueue.engines.closing import Closing
from djqueue.engines.postgres.connection import STATEMENT_TIMEOUT_SECONDS, Connection, connect
from djqueue.engines.postgres.denials import forbidden
from djqueue.engines.postgres.execution import TRANSIENT
from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineBusy, EngineRefused, EngineUnavailable

logger = logging.getLogger("djqueue.engine")

_UNPREPARED = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
# Errors about a value: out of range, not valid text, JSON beyond 256 MB, or against a constraint of the table.
_REFUSED = (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded, UnicodeError)
# A demoted server answers but refuses writes. The connection is closed, because the next may find the new primary.
_UNAVAILABLE = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction)
_TRIES = 5
T = TypeVar("T")


class Session(Closing):
    """One connection of one thread. Its loss raises ``EngineUnavailable``; the next statement connects again."""

    def __init__(
        self,
        alias: str,
        *,
        listen: bool = True,
        statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
        lock_timeout_seconds: float = 0,
    ) -> None:
        self._alias = alias
        self._listen = listen
        self._statement_timeout = statement_timeout_seconds
        self._lock_timeout = lock_timeout_seconds
        self._connection: Connection | None = None
        self._prepares = listen
        """Whether statements are prepared. LISTEN needs a direct connection, and preparing is safe on one: it saves a quarter
        of the work of a small statement."""
        self._role = "worker"

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, name: str, params: dict[str, Any]) -> list[Any]:
        """Run one statement in a transaction of its own."""
        return self.run_all([(name, params)])[0]

    def run_all(self, statements: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Any]]:
        """Run statements in one transaction: all or none."""

        def work(connection: psycopg.Connection[TupleRow]) -> list[list[Any]]:
            # A single statement is a transaction of its own and needs no BEGIN and COMMIT.
            with connection.transaction() if len(statements) > 1 else nullcontext():
                cursors = [connection.execute(sql(name), params) for name, params in statements]
            return [rows_of(cursor) if cursor.description else [] for cursor in cursors]

        return self.attempt(work)

    def wake(self, queues: Collection[str]) -> None:
        if queues and self._listen:
            self.run("wake", {"queues": sorted(queues)})

    @staticmethod
    def _work(connection: Connection, work: Callable[[psycopg.Connection[TupleRow]], T]) -> T:
        if connection.local_settings is None:
            return work(connection)
        with connection.transaction():
            connection.execute(connection.local_settings)
            return work(connection)

    def attempt(self, work: Callable[[psycopg.Connection[TupleRow]], T]) -> T:
        """Run ``work`` on the connection; retry it after a serialization failure or a deadlock."""
        lost: psycopg.Error
        for _ in range(_TRIES):
            try:
                if self._connection is None:
                    self._connection = connect(
                        self._alias,
                        self._role,
                        self._statement_timeout,
                        lock_timeout_seconds=self._lock_timeout,
                        prepares=self._prepares,
                    )
                return self._work(self._connection, work)
            except _UNPREPARED as error:
                # A pooler has switched to a server connection without our prepared statement, or with another client's of the
                # same name. The server refused to run the statement, so nothing was done.
                logger.warning(
                    "Prepared statements are not available (%s); continuing without them.", str(error).strip()
                )
                lost = error
                self._prepares = False
                self.close()
            except psycopg.errors.LockNotAvailable as error:
                busy = EngineBusy(
                    f"Another transaction in the database {self._alias!r} holds a lock that is needed: {str(error).strip()}"
                )
                busy.is_undone = True
                raise busy from error
            except TRANSIENT as error:
                lost = error
                time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, no secret
            except _REFUSED as error:
                raise EngineRefused(f"The database {self._alias!r} rejected a value: {str(error).strip()}") from error
            except psycopg.errors.InsufficientPrivilege as error:
                raise forbidden(self._alias, error) from error
            except psycopg.Error as error:
                # Regardless of the server's last message (the transaction was idle for too long, the server shuts down): if it
                # has closed the connection, the next statement needs another one.
                connection = self._connection
                if isinstance(error, _UNAVAILABLE) or connection is None or connection.closed:
                    absence = EngineUnavailable(f"The database {self._alias!r} did not answer: {str(error).strip()}")
                    # The statement was never sent, or the server answered with an error and rolled it back.
                    absence.is_undone = connection is None or (error.sqlstate is not None and not connection.closed)
                    self.close()
                    raise absence from error
                raise
        absence = EngineUnavailable(f"The database {self._alias!r} is busy: {str(lost).strip()}")
        absence.is_undone = True
        raise absence from lost
