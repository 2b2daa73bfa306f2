"""Connections of djqueue's own, separate from Django's: autocommit, read committed, never shared between threads.

They are opened through Django's database wrapper, so that the project's connection settings apply to them too:
``assume_role``, receivers of ``connection_created``, a ``get_new_connection`` that fetches a password.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, connections
from django.db.backends.signals import connection_created
from psycopg import sql

from djqueue.adapters.psycopg import PatientConnection
from djqueue.engines.postgres.denials import forbidden, unreachable

STATEMENT_TIMEOUT_SECONDS = 30.0
LOCK_TIMEOUT_SECONDS = 0.1
"""For maintenance: rows that the application locks for longer than this are left for a later round."""

_NETWORK_DEFAULTS: dict[str, Any] = {
    # If the network drops packets, a worker must not hang: by default the kernel waits for hours.
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


_PREPARE_THRESHOLD = 5


class Connection(PatientConnection):
    """A connection of djqueue's own, opened by ``connect``."""

    is_shared = False
    """Whether the connection goes through a pooler. Then ``local_settings`` is the first statement of each transaction, which
    sets what djqueue needs for this transaction only. A single statement is run in a transaction for this reason."""
    local_settings: sql.Composed | None = None
    opened: object = None
    """The original psycopg connection, kept referenced: it warns if it is collected while the session is open."""


def connect(
    alias: str,
    role: str,
    statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
    *,
    lock_timeout_seconds: float = 0,
    prepares: bool = False,
) -> Connection:
    """Open a connection as Django does for this alias; ``role`` shows in ``application_name``.

    The server stops a statement after ``statement_timeout_seconds``, and one that waits for a lock after
    ``lock_timeout_seconds`` (0: never). If the server has not answered after another third of the statement timeout, the
    connection is closed. Behind a pooler the session is shared with other clients, so no session settings are changed: see
    ``Connection.is_shared``.

    Raise ``EngineUnavailable`` if the database cannot be reached, ``EngineDenied`` if it denies access.
    """
    wrapper = _wrapper(alias)
    params = {**_NETWORK_DEFAULTS, **wrapper.get_connection_params()}
    params.setdefault("application_name", application_name(role))
    connection: Connection | None = None
    try:
        raw = wrapper.get_new_connection(params)
        connection = Connection(raw.pgconn)
        connection.opened = raw
        connection.autocommit = True
        connection.patience_seconds = statement_timeout_seconds * 4 / 3
        # When a client connects, a pooler answers in place of the server, with a process id that it made up.
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.is_shared = row is None or row[0] != connection.info.backend_pid
        _initialize(wrapper, raw, connection.is_shared)
        settings = _settings(wrapper, statement_timeout_seconds, lock_timeout_seconds, is_shared=connection.is_shared)
        # The application may have chosen another isolation level or timeouts for its own work; under repeatable read
        # SKIP LOCKED raises serialization errors, and a statement timeout would stop maintenance for ever.
        # Behind a pooler another client may have prepared a different statement under the same name, and the server would run
        # that one. If the project sets ``prepare_threshold`` itself, its setting is kept.
        may_prepare = prepares and not connection.is_shared
        said = wrapper.settings_dict["OPTIONS"].get("prepare_threshold", _PREPARE_THRESHOLD if may_prepare else None)
        connection.prepare_threshold = said
        if connection.is_shared:
            connection.local_settings = settings
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        else:
            connection.execute(settings)
    except (psycopg.Error, DatabaseError, InterfaceError) as error:
        if connection is not None:
            connection.close()
        cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
        if isinstance(cause, psycopg.errors.InsufficientPrivilege):
            raise forbidden(alias, cause) from error
        absence = unreachable(alias, cause)
        absence.is_undone = True
        raise absence from error
    return connection


def _wrapper(alias: str) -> Any:
    """Return a new database wrapper of the alias's class, for a connection that never comes from Django's pool."""
    django_connection = connections[alias]
    settings = dict(django_connection.settings_dict)
    settings["OPTIONS"] = {name: value for name, value in settings["OPTIONS"].items() if name != "pool"}
    return type(django_connection)(settings, alias)


def _initialize(wrapper: Any, raw: psycopg.Connection[Any], is_shared: bool) -> None:
    """Set up a new connection as Django and the project do: time zone, role, ``connection_created``."""
    raw.autocommit = True
    wrapper.connection, wrapper.autocommit = raw, True
    try:
        if not is_shared:
            wrapper.init_connection_state()
        connection_created.send(sender=type(wrapper), connection=wrapper)
    finally:
        # djqueue owns the session from here on. Without this, the wrapper could close it when it is collected.
        wrapper.connection = None


def _settings(
    wrapper: Any, statement_timeout_seconds: float, lock_timeout_seconds: float, *, is_shared: bool
) -> sql.Composed:
    """Return the statement that applies djqueue's settings to the session or, behind a pooler, to one transaction."""
    settings = {
        "TimeZone": "UTC",
        "statement_timeout": str(int(statement_timeout_seconds * 1000)),
        "lock_timeout": str(int(lock_timeout_seconds * 1000)),
        "idle_in_transaction_session_timeout": "60000",
        # A sweep of a million rows takes 0.1 s; compiling it first would take longer.
        "jit": "off",
        # A generic plan that was made while the table was empty would read the whole table when it is full.
        "plan_cache_mode": "force_custom_plan",
    }
    if not is_shared:
        settings["default_transaction_isolation"] = "read committed"
    elif role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
        settings["role"] = role
    calls = [
        sql.SQL("set_config({}, {}, {})").format(sql.Literal(name), sql.Literal(value), sql.Literal(is_shared))
        for name, value in settings.items()
    ]
    return sql.SQL("SELECT {}").format(sql.SQL(", ").join(calls))


def role_of(worker: UUID) -> str:
    """Return the role of the connection on which a worker fetches; see ``Maintainer.disconnect``."""
    return f"worker {worker}"


def application_name(role: str) -> str:
    return f"djqueue {role}"
