"""Read the tables for the admin and for users of the models: reads with a time limit, and the names of the queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from django.db import OperationalError, connections, transaction

from djqueue.engines.postgres.statements import sql


class ReadTooSlow(Exception):
    """The database stopped a read at its time limit. The data is not damaged."""


@contextmanager
def time_limit(alias: str, limit: timedelta) -> Iterator[None]:
    """Limit how long each statement of the block may run; raise ``ReadTooSlow`` when the limit is exceeded.

    The block runs in a transaction, or in a savepoint of the caller's transaction, whose own limit is restored at the end.
    """
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            cursor.execute(sql("time_limit"), {"limit": f"{int(limit.total_seconds() * 1000)}ms"})
            [earlier, _] = cursor.fetchone()
            yield
            cursor.execute(sql("time_limit"), {"limit": earlier})
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise ReadTooSlow(f"A read took longer than {limit.total_seconds():g} s and was stopped.") from error
        raise


def queue_names(alias: str, limit: int = 200) -> list[str]:
    """Return the names of the queues that have available or executing jobs, with one index descent for each."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql("queue_names"), {"limit": limit})
        return [name for (name,) in cursor.fetchall()]
