"""Store one job, in one message where that is safe.

A job enqueued outside of a transaction takes an insert, its commit, and the question whether anybody sleeps, which must not
be asked before the commit (wakes.py). With Django's client-side cursors these travel as one text::

    BEGIN; [SET LOCAL synchronous_commit = off;] INSERT …; COMMIT; SELECT …

which is one round trip instead of two. Each statement between the semicolons stays its own: the COMMIT commits, and the
question runs after it, in a transaction of its own. (A pipeline of psycopg would put both into one transaction.) Only
when Django is in autocommit mode, in no atomic block, **and** the connection is idle at the protocol level: otherwise that
COMMIT would be one of somebody else's work.

The message only asks. Waking is a statement of its own, when there is somebody to wake: a NOTIFY can fail or wait, and an
error after the commit would make the caller enqueue a second time.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

import psycopg
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import PipelineStatus, TransactionStatus

from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.wakes import wake_for
from djqueue.records import InsertedJob, NewJob

_RELAXED = "SET LOCAL synchronous_commit = off"


def insert_one(
    connection: BaseDatabaseWrapper, job: NewJob, now: datetime | None, *, wakes: bool, relaxed: bool
) -> InsertedJob:
    """Store a job without a unique key. ``relaxed`` counts outside of the caller's transactions only."""
    params: dict[str, Any] = {**job._asdict(), "now": now}
    if not _is_autocommit(connection):
        return _insert(connection, job, params, wakes)
    # Of a job for later nobody needs to hear; perhaps the stager does, but that is not asked of the queue.
    asks = wakes and job.scheduled_at is None and job.delay is None
    if (asks or relaxed) and _is_idle(connection):
        return _insert_in_one_message(connection, job, params, asks=asks, wakes=wakes, relaxed=relaxed)
    if not relaxed:
        return _insert(connection, job, params, wakes)
    with transaction.atomic(connection.alias):
        with connection.cursor() as cursor:
            cursor.execute(_RELAXED)
        return _insert(connection, job, params, wakes)


def _insert(connection: BaseDatabaseWrapper, job: NewJob, params: dict[str, Any], wakes: bool) -> InsertedJob:
    with connection.cursor() as cursor:
        cursor.execute(sql("insert_one"), params)
        inserted = InsertedJob(*cursor.fetchone())
    if wakes:
        wake_for(connection, job, inserted)
    return inserted


def _insert_in_one_message(
    connection: BaseDatabaseWrapper, job: NewJob, params: dict[str, Any], *, asks: bool, wakes: bool, relaxed: bool
) -> InsertedJob:
    steps = ["BEGIN", *([_RELAXED] if relaxed else []), sql("insert_one"), "COMMIT", *([sql("asleep")] if asks else [])]
    is_asleep = wakes
    with connection.cursor() as cursor:
        try:
            cursor.execute("; ".join(steps), params)
        except BaseException:
            _end_transaction(connection)
            raise
        for _ in range(2 if relaxed else 1):
            cursor.nextset()
        inserted = InsertedJob(*cursor.fetchone())
        if asks:
            cursor.nextset()
            cursor.nextset()
            [is_asleep] = cursor.fetchone()
    if is_asleep or (wakes and inserted.state != "available"):
        wake_for(connection, job, inserted)
    return inserted


def _is_autocommit(connection: BaseDatabaseWrapper) -> bool:
    return not connection.in_atomic_block and connection.get_autocommit()


def _is_idle(connection: BaseDatabaseWrapper) -> bool:
    """Say whether nothing is open on the connection, and it takes several statements in one text."""
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        return False
    connection.ensure_connection()
    pgconn = connection.connection.pgconn
    return bool(pgconn.transaction_status == TransactionStatus.IDLE and pgconn.pipeline_status == PipelineStatus.OFF)


def _end_transaction(connection: BaseDatabaseWrapper) -> None:
    """Leave the transaction that our BEGIN opened. A connection that is lost has none, and Django finds that out itself."""
    with suppress(psycopg.Error):
        if connection.connection is not None:
            connection.connection.rollback()
