"""Django's database connections in the threads that run jobs.

A job gets its connections as a request does: in the state in which Django opens them, and given back when it has ended.

- A job that leaves a transaction open fails (``require_no_open_transaction``), whatever it returned: the transaction is
  rolled back, and "completed" would mean that its writes are stored.
- ``CONN_MAX_AGE`` is looked at between any two jobs, and a connection of Django's pool goes back to the pool.
- ``CONN_MAX_AGE = 0`` means a new connection for each job. To connect takes milliseconds of the server, so a busy thread
  sends ``DISCARD ALL`` instead, which undoes everything that a session can hold (settings, role, temporary tables, advisory
  locks, LISTEN, prepared statements), and hands the session out again when Django asks for a new connection. Django then
  does what it does with a new one: time zone, role, ``connection_created``. A thread with nothing to do closes it.
- After a failed job, or one whose statements were cancelled, the connection is closed: its state is unknown. Receivers of
  ``task_finished`` get another one.
- What a sync job runs by an event loop of its own (``asyncio.run``) calls Django in a helper thread (``HelperThreads``),
  whose connections end with the job.
- djqueue changes no setting of these sessions. A statement that runs at the deadline of its task is ended by a cancel
  request (``Statements``), which works behind a pooler too, and which no rollback undoes.

A job that uses no database pays for none of this.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from django.db import close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.db.transaction import TransactionManagementError

from djqueue.adapters.django import atomic_depth, forget_transaction, is_opened_by_django, keep_outermost_block

try:
    import psycopg
    from psycopg.pq import TransactionStatus

    from djqueue.adapters.psycopg import handler_counts
except ImportError:
    # A project on another database with its jobs in Redis needs no libpq. Whatever is done with it here is done on PostgreSQL only.
    _OPEN: tuple[int, ...] = ()
else:
    _OPEN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)

_KEPT_SECONDS = 60.0
"""A session is not handed out again after so long: a pooled role, a fail-over or a grown cache gets its new connection."""
_CANCEL_SECONDS = 5.0
_FIRST_CANCEL_PAUSE, _LAST_CANCEL_PAUSE = 0.05, 0.5


class _Thread(threading.local):
    has_connected = False
    """Whether a connection may be open in this thread."""
    is_lent = False
    """Whether this is one of ``LentThreads``: the job may end while what it began here goes on."""
    was_cancelled = False
    """Whether statements of the job that has just ended here were cancelled."""
    helper: ThreadPoolExecutor | None = None
    """The thread in which event loops that run in this one call Django."""

    def __init__(self) -> None:
        self.keepers: list[_Keeper] = []


_thread = _Thread()


def require_no_open_transaction(*, besides: str | None = None) -> None:
    """Raise ``TransactionManagementError`` if the task has left a transaction open in this thread.

    ``besides``: the alias of the database on which the task ran inside ``atomic()``; that block does not count.
    """
    if not _thread.has_connected:
        return  # to ask Django for the connections of this thread takes a tenth of a short job's time
    if _thread.helper is not None:
        _thread.helper.submit(require_no_open_transaction).result()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:  # even if its session is closed by now: what it wrote is lost
            if connection.alias == besides:
                if atomic_depth(connection) == 1:
                    continue
                # Or the end of the outer block would end an inner one, and neither commit nor roll back.
                keep_outermost_block(connection)
        elif (
            connection.connection is None
            or not _is_open(connection)
            or not (connection.settings_dict["AUTOCOMMIT"] or _has_written(connection))
        ):
            continue
        raise TransactionManagementError(
            f"The task left a transaction open on the database {connection.alias!r}. It was rolled back. Use"
            " transaction.atomic(), or commit before the task returns."
        )


def settle(*, is_clean: bool, may_keep: bool = True) -> None:
    """Between two jobs: give this thread's connections back, as Django does at the end of a request.

    ``may_keep``: this thread most likely has another job at once.
    """
    if not _thread.has_connected:
        return
    is_clean = is_clean and not _thread.was_cancelled
    _thread.was_cancelled = False
    if _thread.helper is not None:
        _dismiss_helper()
    is_connected = False
    for connection in connections.all(initialized_only=True):
        connection.queries_log.clear()
        if connection.connection is None and not connection.in_atomic_block:
            continue
        if not is_clean or connection.errors_occurred or not _is_idle(connection):
            _discard(connection)
        elif connection.close_at is None or time.monotonic() < connection.close_at:
            # The next job checks the connection before its first query, if CONN_HEALTH_CHECKS says so.
            connection.health_check_done = False  # type: ignore[attr-defined]  # missing in the stubs
            is_connected = True
        elif not (may_keep and _keep(connection)):
            connection.close()
    _thread.has_connected = is_connected


def release() -> None:
    """Before a thread waits for work: close what may not be kept."""
    for keeper in _thread.keepers:
        keeper.close()
    close_old_connections()


def close_all() -> None:
    """Before a thread ends, or when nothing is known of its connections."""
    for keeper in _thread.keepers:
        keeper.close()
    if _thread.helper is not None:
        _dismiss_helper()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            _discard(connection)  # Django would let nobody connect again
    connections.close_all()


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the session is in a transaction, by libpq's word where there is one: Django knows nothing of a raw BEGIN."""
    raw = connection.connection
    status = getattr(getattr(raw, "info", None), "transaction_status", None)
    if status is not None:
        return status in _OPEN
    return connection.in_atomic_block or bool(getattr(raw, "in_transaction", False))


def _is_idle(connection: BaseDatabaseWrapper) -> bool:
    return (
        not connection.in_atomic_block
        and connection.autocommit == connection.settings_dict["AUTOCOMMIT"]
        and not _is_open(connection)
    )


def _has_written(connection: BaseDatabaseWrapper) -> bool:
    """Say whether the open transaction would change anything; with ``AUTOCOMMIT = False`` every read opens one."""
    if connection.vendor != "postgresql":
        return False
    try:
        with connection.connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id_if_assigned() IS NOT NULL")
            return bool(cursor.fetchone()[0])
    except Exception:  # in a failed transaction: what it wrote is lost
        return True


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close a connection, even one that a job left inside a transaction, where Django would only mark it."""
    forget_transaction(connection)
    if connection.connection is not None and connection.settings_dict["OPTIONS"].get("pool"):
        connection.connection.close()  # the pool replaces it, and would lend it to another otherwise
    connection.close()


class LentThreads(ThreadPoolExecutor):
    """The event loop's default executor: what ``asyncio.to_thread`` and its like run there counts as a request of its own.

    Its threads outlive the jobs. Without this they would keep connections that the server has long closed.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._call, _statements.get(), fn, args, kwargs)

    @staticmethod
    def _call(
        statements: Statements | None, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        is_clean = False
        _thread.is_lent = True
        _watch_all(statements)
        try:
            value = fn(*args, **kwargs)
            require_no_open_transaction()
            is_clean = True
        finally:
            if statements is not None and _thread.has_connected:
                for connection in connections.all(initialized_only=True):
                    _thread.was_cancelled |= statements.forget(connection)
            settle(is_clean=is_clean, may_keep=False)
        return value


class HelperThreads(Executor):
    """asgiref's ``single_thread_executor``, with a thread for each job in place of one for the whole process.

    Django's async ORM and ``sync_to_async`` go there from an event loop that a sync task runs itself (``asyncio.run``). In one
    thread for all, jobs would wait for each other and share a connection that is never closed: a transaction that one
    leaves open would swallow the writes of all that follow, and once the server has hung up they would all fail.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        helper = _thread.helper
        if helper is None:
            helper = _thread.helper = ThreadPoolExecutor(1, thread_name_prefix="djqueue-helper")
            _thread.has_connected = True  # there, perhaps
        return helper.submit(fn, *args, **kwargs)


def forget_helper() -> None:
    """In a fork: the helper of its thread was not copied, and a call would wait for it for ever."""
    _thread.helper = None


def _dismiss_helper() -> None:
    helper, _thread.helper = _thread.helper, None
    assert helper is not None
    with suppress(RuntimeError):  # the process ends
        helper.submit(close_all)
    helper.shutdown(wait=False)


# Sessions that are handed out again


class _Keeper:
    """Stands in for ``get_new_connection`` of one of Django's connections, and keeps a reset session for its next call."""

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
        """Reset the open session and keep it, for Django to be closed; False if that cannot be done."""
        raw = self._wrapper.connection
        if raw is not self._raw or time.monotonic() >= self._until or _state_of(raw) != self._state:
            return False
        try:
            cursor = psycopg.Cursor(raw)
            if self._is_direct is None:
                # Behind a pooler the reset would go to any session, and to connect costs little.
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


def _keep(wrapper: BaseDatabaseWrapper) -> bool:
    """Keep a session instead of closing it; False where it has to be closed."""
    keeper = wrapper.__dict__.get("get_new_connection")
    if isinstance(keeper, _Keeper):
        return keeper.keep()
    if keeper is None and _is_djangos(wrapper):
        # From the next connection on: it has to be known how this one was opened.
        keeper = wrapper.__dict__["get_new_connection"] = _Keeper(wrapper)
        _thread.keepers.append(keeper)
    return False


def _is_djangos(wrapper: BaseDatabaseWrapper) -> bool:
    """Say whether Django alone opens and closes the session, without its pool: a project may do anything there."""
    return (
        wrapper.vendor == "postgresql"
        and wrapper.settings_dict["CONN_MAX_AGE"] == 0
        and not wrapper.settings_dict["OPTIONS"].get("pool")
        and is_opened_by_django(wrapper)
        and isinstance(wrapper.connection, psycopg.Connection)
    )


def _state_of(raw: Any) -> tuple[Any, ...]:
    """What a task can change of psycopg's object, and ``DISCARD ALL`` does not undo."""
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
    """Say whether the server has said nothing since the reset: where it has hung up, there is something to read."""
    if raw.closed:
        return False
    poll = select.poll()
    poll.register(raw.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


# Statements that a deadline ends


class Statements:
    """The SQL statements of one run, for who ends them at its deadline."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: list[BaseDatabaseWrapper] = []
        self._lent: list[BaseDatabaseWrapper] = []
        """Those of lent threads, while these work for the run."""
        self._is_over = False
        self.is_ending = False
        """Whether statements may have been cancelled."""

    def end(self) -> None:
        """Cancel what runs now, and again until the run is over; from any thread, which does not wait for it."""
        with self._lock:
            if self.is_ending or self._is_over:
                return
            self.is_ending = True
        threading.Thread(target=self._end, name="djqueue-cancel", daemon=True).start()

    def watch(self, connection: BaseDatabaseWrapper) -> None:
        with self._lock:
            connections = self._lent if _thread.is_lent else self._connections
            if connection not in connections:
                connections.append(connection)

    def forget(self, connection: BaseDatabaseWrapper) -> bool:
        """Leave a lent thread's connection alone; return whether its statements may have been cancelled."""
        with self._lock:
            if connection in self._lent:
                self._lent.remove(connection)
            return self.is_ending

    def close(self) -> bool:
        """Leave the run's own connections alone; return whether their statements may have been cancelled."""
        with self._lock:
            self._is_over = True
            self._connections.clear()
            return self.is_ending

    def _end(self) -> None:
        pause = _FIRST_CANCEL_PAUSE
        while True:
            with self._lock:
                active = [connection.connection for connection in (*self._connections, *self._lent)]
            for raw in active:
                if _is_active(raw):
                    # It has ended meanwhile, or the server cannot be reached.
                    with suppress(Exception):
                        raw.cancel_safe(timeout=_CANCEL_SECONDS) if hasattr(raw, "cancel_safe") else raw.cancel()
            time.sleep(pause)  # nothing tells when a statement begins
            if self._is_over and not self._lent:
                return
            pause = min(pause * 2, _LAST_CANCEL_PAUSE)


_statements: ContextVar[Statements | None] = ContextVar("djqueue_statements", default=None)
"""Of the run whose code is executing. Threads that asyncio and asgiref lend to a task see it too."""


@contextmanager
def cancellable() -> Iterator[Statements]:
    """Let the statements of the block, on Django's connections of PostgreSQL, be ended from outside."""
    statements = Statements()
    token = _statements.set(statements)
    _watch_all(statements)
    try:
        yield statements
    finally:
        _statements.reset(token)
        if statements.close():
            _thread.was_cancelled = True


def _watch_all(statements: Statements | None) -> None:
    if statements is not None and _thread.has_connected:
        for connection in connections.all(initialized_only=True):
            statements.watch(connection)


def _is_active(raw: Any) -> bool:
    status = getattr(getattr(raw, "info", None), "transaction_status", None)
    return status == TransactionStatus.ACTIVE


def _note_new_connection(connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    _thread.has_connected = True
    statements = _statements.get()
    if statements is not None:
        statements.watch(connection)


connection_created.connect(_note_new_connection)
