"""Django's database connections in the threads that run jobs.

A job gets its connections as a request does: in the state in which Django opens them, and given back when it has ended.

- A job that leaves a transaction open fails (``require_no_open_transaction``), whatever it returned: the transaction is
  rolled back, and "completed" would mean that its writes are stored.
- ``CONN_MAX_AGE`` is checked between any two jobs, and a connection of Django's pool goes back to the pool.
- ``CONN_MAX_AGE = 0`` means a new connection for each job. A busy thread resets its session instead
  (``kept_sessions.py``); an idle thread closes it.
- After a failed job, or one whose statements were cancelled (``statements.py``), the connection is closed: its state is
  unknown. Receivers of ``task_finished`` get another one.
- What a sync job runs in an event loop of its own (``asyncio.run``) calls Django in a helper thread (``helper_threads.py``),
  whose connections end with the job.

A job that uses no database pays for none of this.
"""

from __future__ import annotations

import time
from contextlib import suppress

from django.db import close_old_connections, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from djqueue.adapters.django import atomic_depth, forget_transaction, keep_outermost_block
from djqueue.hooks import logger
from djqueue.runtime import kept_sessions
from djqueue.runtime.thread_state import current

try:
    from psycopg.pq import TransactionStatus
except ImportError:
    # A project whose jobs are in Redis and whose database is not PostgreSQL needs no libpq.
    _OPEN: tuple[int, ...] = ()
else:
    _OPEN = (TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR)


def require_no_open_transaction(*, besides: str | None = None) -> None:
    """Raise ``TransactionManagementError`` if the task has left a transaction open in this thread.

    ``besides``: the alias of the database on which the task ran inside ``atomic()``; that block does not count.
    """
    if not current.has_connected:
        return
    if current.helper is not None:
        current.helper.submit(require_no_open_transaction).result()
    for connection in connections.all(initialized_only=True):
        if not _is_left_open(connection):
            continue
        if connection.in_atomic_block and connection.alias == besides:
            if atomic_depth(connection) == 1:
                continue
            # Or the end of the outer block would end an inner one, and neither commit nor roll back.
            keep_outermost_block(connection)
        raise TransactionManagementError(
            f"The task left a transaction open on the database {connection.alias!r}. It was rolled back. Use"
            " transaction.atomic(), or commit before the task returns."
        )


def roll_back_receivers() -> None:
    """Roll back what receivers of ``task_started`` have left open in this thread: it is not the task's."""
    if not current.has_connected:
        return
    if current.helper is not None:
        current.helper.submit(roll_back_receivers).result()
    for connection in connections.all(initialized_only=True):
        if _is_left_open(connection):
            _discard(connection)
            logger.error(
                "A receiver of task_started left a transaction open on the database %r. It was rolled back.",
                connection.alias,
            )


def give_back(*, is_clean: bool, may_keep: bool = True) -> None:
    """Give this thread's connections back between two jobs, as Django does at the end of a request.

    ``may_keep``: this thread is likely to get another job at once.
    """
    if not current.has_connected:
        return
    is_clean = is_clean and not current.was_cancelled
    current.was_cancelled = False
    if current.helper is not None:
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
        elif not (may_keep and kept_sessions.keep(connection)):
            connection.close()
    current.has_connected = is_connected


def close_unkeepable() -> None:
    """Close what an idle thread may not keep, before it waits for work."""
    kept_sessions.close_kept()
    close_old_connections()


def close_all() -> None:
    """Close every connection before a thread ends, or when their state is unknown."""
    kept_sessions.close_kept()
    if current.helper is not None:
        _dismiss_helper()
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            _discard(connection)  # else Django refuses to connect again in this thread
    connections.close_all()


def forget_helper() -> None:
    """Forget the helper thread in a fork, which has no copy of it: a call would wait for it forever."""
    current.helper = None


def _dismiss_helper() -> None:
    helper, current.helper = current.helper, None
    assert helper is not None
    with suppress(RuntimeError):  # the process ends
        helper.submit(close_all)
    helper.shutdown(wait=False)


def _is_left_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether a transaction is open whose writes would be lost."""
    if connection.in_atomic_block:
        return True  # even if its session is closed by now
    if connection.connection is None or not _is_open(connection):
        return False
    return connection.settings_dict["AUTOCOMMIT"] or _has_written(connection)


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Return whether the session is in a transaction, as libpq reports it where it can: Django does not see a raw BEGIN."""
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
    """Return whether the open transaction has changed anything; with ``AUTOCOMMIT = False`` every read opens one."""
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
