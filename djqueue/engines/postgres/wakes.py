"""Wake sleeping workers and the stager after the caller's commit, once per transaction, alias and queue."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from typing import cast

from django.db import DatabaseError, InterfaceError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.adapters.django import commit_hooks, is_registered
from djqueue.engines.postgres.direct import is_own_transaction, run_prepared
from djqueue.engines.postgres.statements import sql
from djqueue.engines.protocol import SOON_SECONDS, STAGE
from djqueue.jobs.records import InsertedJob, NewJob

logger = logging.getLogger("djqueue.wake")

PUT_BACK = "!"


def put_back(queue: str) -> str:
    """Return the name that announces put-back jobs in this queue to workers whose fetches skip entries."""
    return f"{queue}{PUT_BACK}"


class Wake:
    """An on_commit hook that collects queues. Each later enqueue in the transaction adds to it."""

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.queues: set[str] = set()
        self.due_at = math.inf
        """Monotonic time at which the first of the scheduled jobs is due."""

    def add(self, queues: Iterable[str], due_in: float) -> None:
        self.queues.update(queues)
        self.due_at = min(self.due_at, time.monotonic() + due_in)

    def __call__(self, statement: str = "wake") -> None:
        # Checked only now, because the transaction may have been long: a job may have become due meanwhile.
        if self.due_at - time.monotonic() <= SOON_SECONDS:
            self.queues.add(STAGE)
        if not self.queues:
            return
        # The jobs are stored. With an error the caller would enqueue them again, and polling finds them anyway.
        try:
            if statement == "wake" and self._is_prepared():
                return
            with self.connection.cursor() as cursor:
                cursor.execute(sql(statement), {"queues": sorted(self.queues)})
        except (DatabaseError, InterfaceError) as error:
            logger.warning("Could not wake workers for %s: %s", ", ".join(sorted(self.queues)), error)

    def _is_prepared(self) -> bool:
        """Wake by a prepared statement, which saves as much time as a worker's fetch takes; return False if not possible."""
        names = ['"' + queue.replace("\\", "\\\\").replace('"', '\\"') + '"' for queue in sorted(self.queues)]
        queues = f"{{{','.join(names)}}}".encode()
        return (
            is_own_transaction(self.connection)
            and run_prepared(self.connection, "wake", ("queues",), [queues]) is not None
        )


def wake_after_commit(connection: BaseDatabaseWrapper, queues: Iterable[str], *, due_in: float = math.inf) -> None:
    """Wake the workers that sleep on these queues as soon as they can see the caller's writes.

    ``due_in``: seconds until the first of the scheduled jobs is due; the stager is woken if it might sleep longer.
    """
    if not connection.in_atomic_block:
        wake = Wake(connection)
        wake.add(queues, due_in)
        # Django has no commit hooks for a transaction that it does not manage. Checking for sleepers now would be too
        # early, and the lock of the check would keep workers from marking their sleep until the transaction ends.
        wake("wake" if is_own_transaction(connection) else "notify")
    elif (pending := _pending(connection)) is not None:
        # The hook may have been registered outside a savepoint that is rolled back later. Then it wakes a worker in vain.
        pending.add(queues, due_in)
    else:
        wake = Wake(connection)
        wake.add(queues, due_in)
        transaction.on_commit(wake, using=connection.alias, robust=True)
        connection._djqueue_wake = (wake, len(commit_hooks(connection)) - 1)  # type: ignore[attr-defined]


def wake_for(connection: BaseDatabaseWrapper, new: NewJob, inserted: InsertedJob) -> None:
    """Wake a worker for an available job, or the stager for one that is due soon."""
    due_in = seconds_until_due(new, inserted)
    if inserted.state == "available" or due_in < math.inf:
        wake_after_commit(connection, {new.queue} if inserted.state == "available" else (), due_in=due_in)


def seconds_until_due(new: NewJob, job: InsertedJob, *, is_rescheduled: bool = False) -> float:
    """Return the seconds until a scheduled job is due, or infinity for a job that the stager need not handle.

    ``is_rescheduled``: the duplicate has changed the time of the job that holds its key.
    """
    if job.state != "scheduled" or (job.was_duplicate and not is_rescheduled):
        return math.inf
    if new.scheduled_at is None:
        return new.delay.total_seconds() if new.delay is not None else 0.0
    if (new.scheduled_at.tzinfo is None) != (job.inserted_at.tzinfo is None):
        return 0.0  # not comparable, and a needless wake-up is cheap
    return (new.scheduled_at - job.inserted_at).total_seconds()


def _pending(connection: BaseDatabaseWrapper) -> Wake | None:
    """Return the hook of this transaction, if there is one."""
    wake, place = getattr(connection, "_djqueue_wake", (None, 0))
    return cast(Wake, wake) if wake is not None and is_registered(connection, wake, place) else None
