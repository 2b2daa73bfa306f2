"""Store one job, in one statement and one round trip.

Storing a job takes an insert, its commit, and a check whether a worker sleeps on the queue. If the insert is a transaction of its
own, it includes the check and holds the lock that the check takes until its commit; a worker that marks its sleep waits for that
commit (``sql/insert_one.sql``, ``sql/mark_behind.sql``). So no second transaction is needed, and no job can be missed.

Within the caller's transaction this lock would keep workers from marking their sleep until the transaction ends; there the check
comes after the commit (``wakes.py``).

The insert only checks. Waking is a separate statement, sent if a worker sleeps: a NOTIFY can fail or wait, and an error after
the commit would make the caller enqueue a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.direct import is_own_transaction, run_in_transaction, run_prepared
from djqueue.engines.postgres.execution import TRANSIENT
from djqueue.engines.postgres.moments import rows_of
from djqueue.engines.postgres.statements import sql
from djqueue.engines.postgres.wakes import wake_for
from djqueue.jobs.records import InsertedJob, NewJob

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
_PARAMS_WITH_KEY = (*_PARAMS, "unique_key")
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
"""PostgreSQL counts microseconds from this time."""


def insert_one(
    connection: BaseDatabaseWrapper, job: NewJob, now: datetime | None, *, wakes: bool, relaxed: bool
) -> InsertedJob | None:
    """Store a job; return None if it has a unique key that a live job holds.

    ``relaxed`` has an effect only outside the caller's transactions.
    """
    is_own = is_own_transaction(connection)
    asks = wakes and is_own
    relaxed = relaxed and is_own
    statement = "insert_one" if job.unique_key is None else "insert_one_unique"
    try:
        # Without LISTEN there may be a pooler, which gets the statement through Django's cursor.
        rows = _insert_directly(connection, statement, job, now, is_own, relaxed) if wakes else None
        if rows is None:
            params: dict[str, Any] = {**job._asdict(), "now": now, "asks": asks, "relaxed": relaxed}
            with connection.cursor() as cursor:
                cursor.execute(sql(statement), params)
                rows = rows_of(cursor)
    except OperationalError as error:
        # It conflicted with another insert of the same key, and the database aborted one of the two.
        if not (is_own and job.unique_key is not None and isinstance(error.__cause__, TRANSIENT)):
            raise
        rows = ()
    if not rows:
        return None
    id, state, inserted_at, is_asleep = rows[0]
    inserted = InsertedJob(id, state, inserted_at)
    if is_asleep or (wakes and not (asks and state == "available")):
        wake_for(connection, job, inserted)
    return inserted


def _insert_directly(
    connection: BaseDatabaseWrapper, statement: str, job: NewJob, now: datetime | None, is_own: bool, relaxed: bool
) -> Sequence[tuple[int, str, datetime, bool]] | None:
    """Insert without Django's cursors; return None if that is not possible, and nothing was done.

    ``is_own``: the statement is a transaction of its own, and checks for sleeping workers.
    """
    zone = connection.timezone
    if zone is None:
        return None  # then times are in the time zone of the session, which psycopg knows
    params = [
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
        b"t" if is_own else b"f",
        b"t" if relaxed else b"f",
    ]
    run = run_prepared if is_own else run_in_transaction
    if job.unique_key is None:
        answer = run(connection, statement, _PARAMS, params)
    else:
        answer = run(connection, statement, _PARAMS_WITH_KEY, [*params, job.unique_key.encode()])
    if answer is None or not answer.ntuples:
        return None if answer is None else ()
    value = answer.get_value
    id, state, microseconds, is_asleep = value(0, 0) or b"", value(0, 1) or b"", value(0, 2) or b"", value(0, 3)
    at = _EPOCH + timedelta(microseconds=int.from_bytes(microseconds, signed=True))
    return [(int.from_bytes(id), state.decode(), at if zone is UTC else at.astimezone(zone), is_asleep == b"\1")]


def _time(value: datetime | None) -> bytes | None:
    return None if value is None else value.isoformat().encode()


def _interval(value: timedelta | None) -> bytes | None:
    # Each part with its sign: some settings of IntervalStyle apply the sign of the first part to all.
    if value is None:
        return None
    return b"%+d days %+d seconds %+d microseconds" % (value.days, value.seconds, value.microseconds)
