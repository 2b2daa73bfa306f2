"""What people who look at the tables need beside the models: reads that cannot hang, and the names of the queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from django.db import OperationalError, connections, transaction

from djqueue.engines.postgres.statements import sql


class ReadTooSlow(Exception):
    """The database stopped a read at its time limit. Nothing is wrong with the data."""


@contextmanager
def time_limit(alias: str, limit: timedelta) -> Iterator[None]:
    """Let no statement of the block run longer than the limit; raise ``ReadTooSlow`` instead.

    The block runs in a transaction, or in a savepoint of the caller's, whose own limit is put back at the end.
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
    """Name the queues that have available or executing jobs, at the price of one index descent each."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql("queue_names"), {"limit": limit})
        return [name for (name,) in cursor.fetchall()]
