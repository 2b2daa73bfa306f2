"""Run statements on a connection that its caller has opened."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql

TRANSIENT = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
"""The server has rolled the transaction back, which may be run again."""
Execute = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
"""Run ``sql/<name>.sql`` with these parameters and return its rows."""
_TRIES = 10


def run_on(cursor: Any) -> Execute:
    """Return a function that runs a statement by name on this cursor, which may be Django's or psycopg's."""

    def execute(name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor.execute(sql(name), params)
        return rows_of(cursor) if cursor.description else []

    return execute


def run_here(connection: BaseDatabaseWrapper, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement in the caller's transaction; outside one, retry it after a serialization failure or a deadlock."""
    for tries_left in reversed(range(_TRIES)):
        try:
            with connection.cursor() as cursor:
                return run_on(cursor)(name, params)
        except OperationalError as error:
            is_in_transaction = connection.in_atomic_block or not connection.get_autocommit()
            if is_in_transaction or not tries_left or not isinstance(error.__cause__, TRANSIENT):
                raise
            time.sleep(random.uniform(0, 0.05))  # noqa: S311  jitter, not a secret
    raise AssertionError("unreachable")
