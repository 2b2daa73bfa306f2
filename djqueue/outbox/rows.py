"""The outbox: rows for jobs that were enqueued in a transaction and are not yet in the store.

A row is written in the caller's transaction, so it commits and rolls back with the caller's data. After the commit its jobs
are sent to the store and the row is deleted. If the process is killed in between, the row remains, and the leader of the workers
sends its jobs later (``maintenance/relay.py``). Both may send them at the same time, because a pending insert is idempotent.

The table uses only Django's ORM, because the database can be of any vendor. Rows are short-lived, so that is fast enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import DurationField, ExpressionWrapper, F, Min, QuerySet
from django.db.models.functions import Length, Now

from djqueue.adapters.django import delete_rows
from djqueue.exceptions import EngineUnavailable

if TYPE_CHECKING:
    from djqueue.models import OutboxRow

_READ_CHARACTERS = 16_000_000
_DELETED_AT_ONCE = 500
"""The number of parameters that a statement can have on every database."""


class Waiting(NamedTuple):
    """A row that has not been sent yet."""

    id: UUID
    text: str
    age: timedelta


class Outbox:
    """The rows of one entry of TASKS, in one database."""

    def __init__(self, backend: str, database: str) -> None:
        self.backend = backend
        self._database = database

    def add(self, text: str) -> UUID:
        """Write a row in the caller's transaction, without the signals that a model's ``save`` sends."""
        from djqueue.models import OutboxRow

        [row] = OutboxRow.objects.using(self._database).bulk_create([OutboxRow(backend=self.backend, text=text)])
        return row.id

    def delete(self, ids: Sequence[UUID]) -> None:
        """Delete rows whose jobs are in the store. Raise ``EngineUnavailable`` when the database does not answer."""
        with _told(self._database):
            for start in range(0, len(ids), _DELETED_AT_ONCE):
                rows = self._rows().filter(id__in=ids[start : start + _DELETED_AT_ONCE])
                # delete() would first read the rows if the project has a receiver for the deletion of any model.
                delete_rows(rows, self._database)

    def delete_unlocked(self, ids: Sequence[UUID]) -> None:
        """Like ``delete``, but skip rows that another transaction locks, on databases with SKIP LOCKED."""
        features = connections[self._database].features
        if ids and features.has_select_for_update_skip_locked:
            with _told(self._database), transaction.atomic(self._database):
                rows = self._rows().filter(id__in=ids).order_by("id").select_for_update(skip_locked=True)
                self.delete(list(rows.values_list("id", flat=True)))
        else:
            self.delete(ids)

    def waiting(self, age: timedelta, limit: int, but: Collection[UUID] = ()) -> list[Waiting]:
        """Return rows of at least this age, oldest first, except those in ``but``. Only for djqueue's own threads."""
        waited = ExpressionWrapper(Now() - F("created_at"), output_field=DurationField())
        rows = self._rows().filter(created_at__lte=Now() - age).exclude(id__in=but).order_by("created_at")
        with _reconnected(self._database):
            # Lengths are read first: a row may hold many megabytes, and many such rows would take too much memory.
            sizes = list(rows.annotate(size=Length("text")).values_list("id", "size")[:limit])
            totals = accumulate(size for _, size in sizes)
            ids = [id for (id, _), total in zip(sizes, totals, strict=True) if total <= _READ_CHARACTERS] or [
                id for id, _ in sizes[:1]
            ]
            found = rows.filter(id__in=ids).annotate(age=waited).values_list("id", "text", "age")
            return [Waiting(*row) for row in found]

    def oldest_seconds(self) -> float | None:
        """Return how long the oldest row has waited, or None if there is no row."""
        waited = ExpressionWrapper(Now() - Min("created_at"), output_field=DurationField())
        with _reconnected(self._database):
            age = self._rows().aggregate(age=waited)["age"]
        return None if age is None else float(age.total_seconds())

    def close(self) -> None:
        """Close this thread's connection."""
        connections[self._database].close()

    def _rows(self) -> QuerySet[OutboxRow]:
        from djqueue.models import OutboxRow

        return OutboxRow.objects.using(self._database).filter(backend=self.backend)


@contextmanager
def _told(alias: str) -> Iterator[None]:
    """Say in one line what the database does not answer."""
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        raise EngineUnavailable(f"The outbox in the database {alias!r} cannot be used: {str(error).strip()}") from error


@contextmanager
def _reconnected(alias: str) -> Iterator[None]:
    """Use a connection that Django does not manage: replace it if it has been closed, and close it after an error."""
    connection = connections[alias]
    connection.close_if_unusable_or_obsolete()
    try:
        with _told(alias):
            yield
    except EngineUnavailable:
        connection.close()
        raise
