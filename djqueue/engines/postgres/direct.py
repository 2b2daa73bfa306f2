"""Statements sent on Django's own connection past Django's cursors, and prepared where that is safe.

Django's cursor and psycopg's write the parameters into the text of each statement, which the server parses and plans anew.
For an insert of one row that takes several times as long as the insert. Parameters beside the text take a few microseconds of
the client, and a prepared statement half of the server's work.

Only where nobody could tell the difference:

- Nobody watches. Execute wrappers, the query log (``DEBUG``, ``assertNumQueries``), and whoever has put something of his own
  in the place of Django's or psycopg's cursors (tracing, metrics, a test without a database) get the statement as text
  through the cursor, as ever.
- A statement is prepared only if there is no pooler. Behind one a name may be another client's statement, of another text. A
  pooler answers for the server when a client connects, with a process id of its own invention.
- And only if it is a transaction of its own. Somebody's DEALLOCATE would be an error in the caller's transaction, and the end
  of it; outside of one the statement is simply prepared again.
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
"""Gone by somebody's DEALLOCATE or DISCARD, or prepared before a migration: the server refused before it did anything."""


def is_own_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the next statement will be a transaction of its own; connect if need be.

    Not by Django's word alone: a project can have sent a BEGIN that Django knows nothing of, or use psycopg's pipeline.
    """
    if connection.in_atomic_block:
        return False
    connection.close_if_health_check_failed()
    if not connection.get_autocommit():
        return False
    pgconn = connection.connection.pgconn
    return bool(pgconn.transaction_status == _IDLE and pgconn.pipeline_status == _NO_PIPELINE)


def run_prepared(connection: BaseDatabaseWrapper, name: str, order: Order, params: Params) -> PGresult | None:
    """Run ``sql/<name>.sql`` with one parameter, as text, per name of ``order``; the answer is in PostgreSQL's binary format.

    None where it has to go through Django's cursor; nothing was done then. Only if ``is_own_transaction``.
    """
    session = _session(connection, params)
    if session is None:
        return None
    if not session.is_used:
        # The first statement of a connection is perhaps its only one, and then not worth the preparing.
        session.is_used = True
        return None
    with connection.wrap_database_errors:
        return session.run_prepared(connection.connection, name, order, params)


def run_in_transaction(connection: BaseDatabaseWrapper, name: str, order: Order, params: Params) -> PGresult | None:
    """Run a statement like ``run_prepared``, without preparing it, in the transaction that the caller has begun.

    None also where there is none yet: Django's cursor begins it.
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
    """What is known of one connection. It does not hold the connection, which would never be collected then."""

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
        """Run a statement, and prepare it before if need be; None if that cannot be done here."""
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
    """Return what is known of a connection, if these parameters may go past its cursors."""
    raw = connection.connection
    if type(raw) is not psycopg.Connection or is_watched(connection):
        return None
    session = _sessions.get(raw)
    if session is None:
        session = _sessions[raw] = _Session(connection)
    if not session.is_plain or b"\0" in b"".join(filter(None, params)):
        return None  # libpq would take a NUL for the end of the text
    return session


def _forget(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    """Start afresh with what Django calls a new connection: it may be a session that was reset."""
    with suppress(TypeError):  # of another database, whose connections may be of any kind
        _sessions.pop(connection.connection, None)


connection_created.connect(_forget)


@cache
def _numbered(name: str, order: Order) -> bytes:
    """Return a statement with its parameters numbered, as the server knows them."""
    numbers = {f"%({param})s": f"${number}" for number, param in enumerate(order, 1)}
    return re.sub(r"%\(\w+\)s", lambda match: numbers[match[0]], sql(name)).encode()
