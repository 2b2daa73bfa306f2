"""Wake sleeping workers after the caller's commit: once per transaction, alias and queue."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import cast

from django.db import DatabaseError, InterfaceError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from djqueue.engines.postgres.statements import sql

logger = logging.getLogger("djqueue.wake")


class Wake:
    """An on_commit hook that collects queues. Every later enqueue of the transaction adds to it."""

    def __init__(self, connection: BaseDatabaseWrapper, queues: Iterable[str], statement: str = "wake") -> None:
        self.connection = connection
        self.statement = statement
        self.queues = set(queues)

    def __call__(self) -> None:
        # The jobs are stored. An error here would make the caller enqueue them twice, and the poll finds them anyway.
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql(self.statement), {"queues": sorted(self.queues)})
        except (DatabaseError, InterfaceError) as error:
            logger.warning("No worker could be woken for %s: %s", ", ".join(sorted(self.queues)), error)


def wake_after_commit(connection: BaseDatabaseWrapper, queues: Iterable[str]) -> None:
    """Wake whoever sleeps on these queues as soon as the caller's work is visible to them."""
    if not connection.in_atomic_block:
        if connection.get_autocommit():
            Wake(connection, queues)()
        else:
            # In manual transaction management nobody tells us of the commit. Asking now would come too early, and the
            # asker's lock would stay until the end of the transaction, in the way of who wants to mark its sleep.
            Wake(connection, queues, "notify")()
    elif (pending := _pending(connection)) is not None:
        # Perhaps registered outside a savepoint that is rolled back later: then it wakes somebody for nothing.
        pending.queues.update(queues)
    else:
        wake = Wake(connection, queues)
        transaction.on_commit(wake, using=connection.alias, robust=True)
        connection._djqueue_wake = (wake, len(connection.run_on_commit) - 1)  # type: ignore[attr-defined]


def _pending(connection: BaseDatabaseWrapper) -> Wake | None:
    """Return the hook of this transaction, if it stands where it was put.

    Django drops hooks with their savepoint and clears them at the end of a transaction; looking at one place instead
    of through the list keeps ten thousand enqueues with ten thousand hooks of the application linear.
    """
    wake, place = getattr(connection, "_djqueue_wake", (None, 0))
    hooks = connection.run_on_commit
    if wake is not None and place < len(hooks) and hooks[place][1] is wake:
        return cast(Wake, wake)
    return None
