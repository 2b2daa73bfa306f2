"""Send statements on Django's own connection without its cursors, and prepare them where that is safe.

Django's cursor and psycopg's write the parameters into the text of each statement, which the server then parses and plans
anew. For an insert of one row that takes several times as long as the insert. Sending the parameters separately costs the
client a few microseconds, and a prepared statement saves half of the server's work.

This is done only where it makes no difference to the application:

- No code observes the statements. Execute wrappers, the query log (``DEBUG``, ``assertNumQueries``) and replacements of
  Django's or psycopg's cursors (tracing, metrics, a test without a database) get the statement as text through the
  cursor, as usual.
- A statement is prepared only if there is no pooler. Behind a pooler another client may have prepared a different
  statement under the same name. (A pooler is recognized by the process id: when a client connects, it answers in place of
  the server, with a process id that it made up.)
- A statement is prepared only if it is a transaction of its own. In a caller's transaction, an earlier DEALLOCATE would
  make it fail and abort the transaction; outside one the statement is prepared again.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import PipelineStatus, TransactionStatus

from djqueue.adapters.django import is_watched
from djqueue.adapters.django_postgresql import has_plain_cursors
from djqueue.adapters.psycopg import execute, execute_prepared, prepare
from djqueue.engines.postgres.statements import sql

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

    from djqueue.adapters.psycopg import Params

    Order = tuple[str, ...]

_IDLE, _IN_TRANSACTION = TransactionStatus.IDLE, TransactionStatus.INTRANS
_NO_PIPELINE = PipelineStatus.OFF
_STALE = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.FeatureNotSupported)
"""The statement was removed by DEALLOCATE or DISCARD, or its plan is outdated by a migration. The server did nothing."""


def is_own_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the next statement will be a transaction of its own; connect if necessary.

    Django's state alone does not tell: the project may have sent a BEGIN by itself, or use psycopg's pipeline mode.
    """
    if connection.in_atomic_block:
        return False
    connection.close_if_health_check_failed()
    if not connection.get_autocommit():
        return False
    pgconn = connection.connection.pgconn
    return bool(pgconn.transaction_status == _IDLE and pgconn.pipeline_status == _NO_PIPELINE)


def run_prepared(connection: BaseDatabaseWrapper, name: str, order: Order, params: Params) -> PGresult | None:
    """Run ``sql/<name>.sql`` with one text parameter per name in ``order``; the result is in PostgreSQL's binary format.

    Call it only if ``is_own_transaction``. Return None, without having done anything, if the statement has to go through
    Django's cursor.
    """
    session = _session(connection, params)
    if session is None:
        return None
    if not session.is_used:
        # A connection may send only one statement; then preparing it would be wasted.
        session.is_used = True
        return None
    with connection.wrap_database_errors:
        return session.run_prepared(connection.connection, name, order, params)


def run_in_transaction(connection: BaseDatabaseWrapper, name: str, order: Order, params: Params) -> PGresult | None:
    """Run a statement like ``run_prepared``, without preparing it, in the transaction that the caller has begun.

    Return None also if the transaction has not begun yet: Django's cursor begins it.
    """
    if not connection.in_atomic_block or connection.connection is None:
        return None
    pgconn = connection.connection.pgconn
    if pgconn.transaction_status != _IN_TRANSACTION or pgconn.pipeline_status != _NO_PIPELINE:
        return None
    session = _session(connection, params)
    if session is None:
        return None
    connection.ensure_connection()  # refuses on an event loop, as Django's cursor does
    connection.validate_no_broken_transaction()
    with connection.wrap_database_errors:
        return session.run(connection.connection, _numbered(name, order), params)


class _Session:
    """What is known about one connection. It does not reference the connection, which could otherwise not be collected."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.is_plain = has_plain_cursors(connection) and connection.connection.info.encoding == "utf-8"
        self.is_used = False
        self._is_direct: bool | None = None
        self._names: dict[str, bytes] = {}
        self._count = 0

    def run(self, connection: psycopg.Connection, statement: bytes, params: Params) -> PGresult:
        with connection.lock:
            return connection.wait(execute(connection.pgconn, statement, params))

    def run_prepared(self, connection: psycopg.Connection, name: str, order: Order, params: Params) -> PGresult | None:
        """Run a statement, preparing it first if necessary; return None if that cannot be done here."""
        if self._is_direct is None:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            self._is_direct = row == (connection.info.backend_pid,)
        for _ in range(2 if self._is_direct else 0):
            try:
                with connection.lock:
                    statement = self._names.get(name) or self._prepare(connection, name, order)
                    return connection.wait(execute_prepared(connection.pgconn, statement, params))
            except _STALE:
                self._names.clear()
            except psycopg.errors.DuplicatePreparedStatement:
                break
        self._is_direct = False
        return None

    def _prepare(self, connection: psycopg.Connection, name: str, order: Order) -> bytes:
        self._count += 1
        statement = b"djqueue_%d" % self._count
        connection.wait(prepare(connection.pgconn, statement, _numbered(name, order)))
        self._names[name] = statement
        return statement


_sessions: WeakKeyDictionary[psycopg.Connection, _Session] = WeakKeyDictionary()


def _session(connection: BaseDatabaseWrapper, params: Params) -> _Session | None:
    """Return the state of a connection, or None if these parameters have to go through its cursors."""
    raw = connection.connection
    if type(raw) is not psycopg.Connection or is_watched(connection):
        return None
    session = _sessions.get(raw)
    if session is None:
        session = _sessions[raw] = _Session(connection)
    if not session.is_plain or b"\0" in b"".join(filter(None, params)):
        return None  # libpq would cut the text at the NUL
    return session


def _forget(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Forget the state of a connection that Django announces as new: it may be a session that was reset."""
    with suppress(TypeError):  # connections of other databases may not support weak references
        _sessions.pop(connection.connection, None)


connection_created.connect(_forget)


@cache
def _numbered(name: str, order: Order) -> bytes:
    """Return a statement with numbered parameters ($1, $2, …), as the server expects them."""
    numbers = {f"%({param})s": f"${number}" for number, param in enumerate(order, 1)}
    return re.sub(r"%\(\w+\)s", lambda match: numbers[match[0]], sql(name)).encode()
