"""Connections of djqueue's own, beside Django's: autocommit, read committed, never shared between threads."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
from django.db import connections
from psycopg.rows import TupleRow

from djqueue.engines.postgres.denials import unreachable

STATEMENT_TIMEOUT_SECONDS = 30.0
LOCK_TIMEOUT_SECONDS = 0.1
"""For maintenance: what an application holds for longer than this is left for a later round."""

_NETWORK_DEFAULTS: dict[str, Any] = {
    # A network that swallows packets must not hang a worker for ever: without these the kernel waits for hours.
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}


_PREPARE_THRESHOLD = 5


class Connection(psycopg.Connection[TupleRow]):
    """Hangs up when an answer does not come.

    The server ends a statement that takes too long and says so. A proxy, a firewall or a load balancer that has
    forgotten the connection but still acknowledges every packet says nothing for ever, and no keepalive notices.
    psycopg looks up from its wait ten times a second anyway; all that is added is a look at the clock.
    """

    patience_seconds = STATEMENT_TIMEOUT_SECONDS * 4 / 3

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._watch(gen), *args, **kwargs)

    def _watch(self, gen: Any) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.patience_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    # Closed before anybody sends a ROLLBACK after the statement, and waits for an answer once more.
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.patience_seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def connect(
    alias: str,
    role: str,
    statement_timeout_seconds: float = STATEMENT_TIMEOUT_SECONDS,
    *,
    lock_timeout_seconds: float = 0,
    prepares: bool = False,
) -> psycopg.Connection[TupleRow]:
    """Open a connection with the parameters of a Django alias; ``role`` shows in ``application_name``.

    The server ends a statement after the timeout, and one that waits for a lock after the other (0: never).
    When it has said nothing a third later, the connection is given up.

    Raise ``EngineUnavailable`` when the database cannot be reached, ``EngineDenied`` when it does not let us in.
    """
    params = _params(alias)
    params.setdefault("application_name", application_name(role))
    try:
        connection = Connection.connect(**params, autocommit=True)
        connection.patience_seconds = statement_timeout_seconds * 4 / 3
        # The application may have chosen another isolation level or timeouts for its own work; under repeatable read
        # SKIP LOCKED raises serialization errors, and a statement timeout would stop maintenance for ever.
        row = connection.execute(
            "SELECT pg_backend_pid(), set_config('TimeZone', 'UTC', false),"
            " set_config('default_transaction_isolation', 'read committed', false),"
            " set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
            # A sweep of a million rows takes 0.1 s; compiling it first would take longer.
            " set_config('idle_in_transaction_session_timeout', '60000', false), set_config('jit', 'off', false),"
            # A generic plan made while the table was empty would read the whole of it when it is full.
            " set_config('plan_cache_mode', 'force_custom_plan', false)",
            [str(int(statement_timeout_seconds * 1000)), str(int(lock_timeout_seconds * 1000))],
        ).fetchone()
        # Behind a pooler a statement's name may be somebody else's statement, of another text: the server would run that.
        # A pooler answers for the server when a client connects, with a process id of its own invention. A project that says
        # something about preparing knows its connections.
        is_direct = row is not None and row[0] == connection.info.backend_pid
        if prepares and is_direct and "prepare_threshold" not in connections[alias].settings_dict["OPTIONS"]:
            connection.prepare_threshold = _PREPARE_THRESHOLD
    except psycopg.OperationalError as error:
        raise unreachable(alias, error) from error
    return connection


def application_name(role: str) -> str:
    return f"djqueue {role}"


def _params(alias: str) -> dict[str, Any]:
    django_connection = connections[alias]
    params = {**_NETWORK_DEFAULTS, **django_connection.get_connection_params()}
    # What only Django's own wrapper and cursors understand.
    for key in ("cursor_factory", "context", "isolation_level", "assume_role", "server_side_binding", "pool"):
        params.pop(key, None)
    return params
