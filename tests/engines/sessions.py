"""What a session of the database knows, for the tests of statements that go past Django's cursors."""

from __future__ import annotations

import psycopg
from django.db import connection

from djqueue.jobs.records import NewJob

NEW = NewJob("tests.task")


def prepared() -> int:
    """Return how many statements of ours the session has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'djqueue%%'")
        return int(cursor.fetchone()[0])


def executions() -> int:
    """Return how often the prepared statements of the session have run."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(sum(generic_plans + custom_plans), 0) FROM pg_prepared_statements")
        return int(cursor.fetchone()[0])


def is_idle() -> bool:
    return bool(connection.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)
