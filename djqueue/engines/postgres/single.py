"""Store one job, in one statement and one round trip.

A job takes an insert, its commit, and the question whether anybody sleeps. Where the insert is a transaction of its own, it asks
by itself, and holds the lock that it asks for until its commit: a sleeper's mark waits for that (``sql/insert_one.sql``,
``sql/mark_behind.sql``). So no second transaction is needed, and no moment is left in which a job is missed.

Within the caller's transaction the lock would stand in the way of sleepers for as long as the caller likes; there the question
comes after the commit (``wakes.py``).

The insert only asks. Waking is a statement of its own, when there is somebody to wake: a NOTIFY can fail or wait, and an
error after the commit would make the caller enqueue a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.prepared import is_own_transaction, run_prepared
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.wakes import wake_for
from djqueue.records import InsertedJob, NewJob

_PARAMS = (
    "queue",
    "task",
    "args",
    "kwargs",
    "priority",
    "max_attempts",
    "scheduled_at",
    "delay",
    "expires_at",
    "max_age",
    "meta",
    "now",
    "asks",
    "relaxed",
)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""PostgreSQL counts microseconds from here."""


def insert_one(
    connection: BaseDatabaseWrapper, job: NewJob, now: datetime | None, *, wakes: bool, relaxed: bool
) -> InsertedJob:
    """Store a job without a unique key. ``relaxed`` counts outside of the caller's transactions only."""
    is_own = is_own_transaction(connection)
    asks = wakes and is_own
    # LISTEN needs a direct connection, and so does preparing.
    row = _insert_prepared(connection, job, now, asks, relaxed) if asks else None
    if row is None:
        params: dict[str, Any] = {**job._asdict(), "now": now, "asks": asks, "relaxed": relaxed and is_own}
        with connection.cursor() as cursor:
            cursor.execute(sql("insert_one"), params)
            row = cursor.fetchone()
    id, state, inserted_at, is_asleep = row
    inserted = InsertedJob(id, state, inserted_at)
    if is_asleep or (wakes and not (asks and state == "available")):
        wake_for(connection, job, inserted)
    return inserted


def _insert_prepared(
    connection: BaseDatabaseWrapper, job: NewJob, now: datetime | None, asks: bool, relaxed: bool
) -> Sequence[Any] | None:
    """Insert past Django's cursors; None where that may not be, and nothing was done."""
    zone = connection.timezone
    if zone is None:
        return None  # then times are told in the time zone of the session, which psycopg knows
    params = (
        job.queue.encode(),
        job.task.encode(),
        job.args.encode(),
        job.kwargs.encode(),
        b"%d" % job.priority,
        b"%d" % job.max_attempts,
        _time(job.scheduled_at),
        _interval(job.delay),
        _time(job.expires_at),
        _interval(job.max_age),
        job.meta.encode(),
        _time(now),
        b"t" if asks else b"f",
        b"t" if relaxed else b"f",
    )
    answer = run_prepared(connection, "insert_one", _PARAMS, params)
    if answer is None:
        return None
    value = answer.get_value
    id, state, microseconds, is_asleep = value(0, 0) or b"", value(0, 1) or b"", value(0, 2) or b"", value(0, 3)
    at = _EPOCH + timedelta(microseconds=int.from_bytes(microseconds, signed=True))
    return int.from_bytes(id), state.decode(), at if zone is UTC else at.astimezone(zone), is_asleep == b"\1"


def _time(value: datetime | None) -> bytes | None:
    return None if value is None else value.isoformat().encode()


def _interval(value: timedelta | None) -> bytes | None:
    # Each with its sign: some settings of IntervalStyle take that of the first for all.
    return (
        None
        if value is None
        else b"%+d days %+d seconds %+d microseconds" % (value.days, value.seconds, value.microseconds)
    )
