"""Who did what: an act and its entry in the log come together, or neither does.

Where the jobs live in the database of the log, both are one transaction. A store elsewhere knows nothing of that transaction:
an entry that announces the act is stored first, and gives way to what came of it. If the answer of the store is lost, or this
process dies in between, the announcement stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import models, router, transaction
from django.http import HttpRequest

from djqueue.admin.sources import Source
from djqueue.exceptions import DjqueueError, EngineUnavailable


def entry(
    request: HttpRequest,
    model: type[models.Model],
    message: str,
    *,
    key: str | None = None,
    name: str | None = None,
    flag: int = CHANGE,
) -> LogEntry:
    """Make an entry of the log, not saved. ``name``: how it is listed; the key itself if it is not given."""
    return LogEntry(
        user_id=cast(int, request.user.pk),
        content_type=ContentType.objects.get_for_model(model),
        object_id=key,
        object_repr=(name or key or "")[:200],
        action_flag=flag,
        change_message=message,
    )


@contextmanager
def audited(source: Source, announcement: LogEntry) -> Iterator[list[LogEntry]]:
    """Act upon a store inside of the block, and append what is to be noted to the list that it yields."""
    database = router.db_for_write(LogEntry)
    entries: list[LogEntry] = []
    if source.database_of_writes == database:
        with transaction.atomic(using=database):
            yield entries
            LogEntry.objects.bulk_create(entries)
        return
    announcement.change_message = f"{announcement.change_message} (outcome unknown)"
    announcement.save()
    try:
        yield entries
    except EngineUnavailable:
        raise  # it may have been done all the same
    except DjqueueError:
        announcement.delete()
        raise
    with transaction.atomic(using=database):
        announcement.delete()
        LogEntry.objects.bulk_create(entries)
