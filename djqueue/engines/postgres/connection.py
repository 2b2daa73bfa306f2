"""Connections of djqueue's own, beside Django's: autocommit, read committed, never shared between threads."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections
from psycopg.rows import TupleRow

from djqueue.exceptions import EngineUnavailable

_NETWORK_DEFAULTS: dict[str, Any] = {
    # A network that swallows packets must not hang a worker for ever: without these the kernel waits for hours.
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


def connect(alias: str, role: str) -> psycopg.Connection[TupleRow]:
    """Open a connection with the parameters of a Django alias; ``role`` shows in ``application_name``.

    Raise ``EngineUnavailable`` when the database cannot be reached.
    """
    params = _params(alias)
    params.setdefault("application_name", application_name(role))
    try:
        connection: psycopg.Connection[TupleRow] = psycopg.Connection.connect(**params, autocommit=True)
        # The application may have chosen another isolation level or timeouts for its own work; under repeatable read
        # SKIP LOCKED raises serialization errors, and a statement timeout would stop maintenance for ever.
        connection.execute(
            "SELECT set_config('TimeZone', 'UTC', false), set_config('default_transaction_isolation', 'read committed', false),"
            " set_config('statement_timeout', '60000', false), set_config('lock_timeout', '0', false),"
            # A sweep of a million rows takes 0.1 s; compiling it first would take longer.
            " set_config('idle_in_transaction_session_timeout', '60000', false), set_config('jit', 'off', false)"
        )
    except psycopg.OperationalError as error:
        raise EngineUnavailable(f"The database {alias!r} cannot be reached: {str(error).strip()}") from error
    return connection


def application_name(role: str) -> str:
    return f"djqueue {role}"


def _params(alias: str) -> dict[str, Any]:
    django_connection = connections[alias]
    params = {**_NETWORK_DEFAULTS, **django_connection.get_connection_params()}
    # What only Django's own wrapper and cursors understand.
    for key in ("cursor_factory", "context", "isolation_level", "assume_role", "server_side_binding", "pool"):
        params.pop(key, None)
    # Behind a pooler a prepared statement may already exist, or not exist any more. Django's default is never to
    # prepare; a project that sets a threshold has a direct connection and gains from it here too.
    params.setdefault("prepare_threshold", None)
    return params
