"""Statements on the application's connection, in its transaction if there is one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from typing import Any

import psycopg
from django.db import OperationalError, connections

from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.exceptions import EngineUnavailable
from djqueue.jobs.states import JobState

_TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_TRIES = 5


class Application:
    """The base class of the roles that run on the application's connection."""

    def __init__(self, alias: str, *, listen: bool = True) -> None:
        self.alias = alias
        self.listen = listen

    def execute(self, name: str, params: dict[str, Any]) -> list[Any]:
        """Run a statement in the caller's transaction; outside one, retry it after a serialization failure or a deadlock."""
        connection = connections[self.alias]
        for _ in range(_TRIES):
            try:
                with connection.cursor() as cursor:
                    cursor.execute(sql(name), params)
                    return rows_of(cursor)
            except OperationalError as error:
                if connection.in_atomic_block or not isinstance(error.__cause__, _TRANSIENT):
                    raise
                lost = error
                time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, not a secret
        raise EngineUnavailable(f"The database {self.alias!r} is busy: {str(lost).strip()}") from lost


def states_of(states: Iterable[JobState]) -> list[str] | None:
    return [state.value for state in states] or None
