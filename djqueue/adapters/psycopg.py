"""Undocumented parts of psycopg: the generators with which its connections wait, and its handlers."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus
from psycopg.rows import TupleRow
from psycopg.waiting import READY_R, WAIT_R, WAIT_RW, Ready, Wait

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    Params = list[bytes | None]
    Answer = Generator[Wait, Ready | int, PGresult]

_BINARY = 1
_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class PatientConnection(psycopg.Connection[TupleRow]):
    """Closes itself when an answer does not come.

    The server ends a statement that takes too long and reports it. A proxy, a firewall or a load balancer that has
    forgotten the connection but still acknowledges every packet stays silent forever, and no keepalive notices.
    psycopg returns from its wait ten times a second anyway; all that is added is a look at the clock.
    """

    patience_seconds = 40.0

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._watch(gen), *args, **kwargs)

    def _watch(self, gen: Any) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.patience_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    # Closed before psycopg sends a ROLLBACK after the statement, and waits for an answer once more.
                    self.close()
                    raise psycopg.OperationalError(f"no answer within {self.patience_seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


def execute(pgconn: PGconn, statement: bytes, params: Params) -> Answer:
    """Run a statement with ``$1`` parameters as text; the answer is in binary. For ``connection.wait``, holding its lock."""
    pgconn.send_query_params(statement, params, result_format=_BINARY)
    return (yield from _answer(pgconn))


def prepare(pgconn: PGconn, name: bytes, statement: bytes) -> Answer:
    """Prepare a statement under a name; see ``execute``."""
    pgconn.send_prepare(name, statement)
    return (yield from _answer(pgconn))


def execute_prepared(pgconn: PGconn, name: bytes, params: Params) -> Answer:
    """Run a prepared statement; see ``execute``."""
    pgconn.send_query_prepared(name, params, result_format=_BINARY)
    return (yield from _answer(pgconn))


def _answer(pgconn: PGconn) -> Answer:
    """Send what is to be sent and return the answer. Waiting is left to psycopg, whose wait Ctrl-C interrupts."""
    while pgconn.flush():
        if ((yield WAIT_RW) or 0) & READY_R:
            pgconn.consume_input()
    results: list[PGresult] = []
    try:
        while True:
            while pgconn.is_busy():
                if (yield WAIT_R):
                    pgconn.consume_input()
            if (result := pgconn.get_result()) is None:
                break
            results.append(result)
    except psycopg.OperationalError:
        # If the server gave a reason before it closed the connection, that is the better error.
        if all(result.status in _ANSWERED for result in results):
            raise
    # A commit that fails does so after the row was returned.
    for result in results:
        if result.status not in _ANSWERED:
            raise psycopg.errors.error_from_result(result)
    return results[0]


def handler_counts(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """Return how many notice and notify handlers a connection has."""
    return len(getattr(connection, "_notice_handlers", ())), len(getattr(connection, "_notify_handlers", ()))
