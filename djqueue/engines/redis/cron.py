"""The crontab on Redis.

A tick is one script: it looks whether the entry is still as it was read, inserts the job as every job is inserted, writes the
tick and moves the entry on. What the scripts need not understand of an entry (its definition) is one JSON text to them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, cast

import msgpack

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Due, NewTick, Ticked
from djqueue.encoding import storable
from djqueue.engines.redis.codec import clock, datetime_of, job_arguments, micros
from djqueue.records import NewJob

_PAGE = 200
"""Entries of one read."""
_PRUNE_STEP = 1000


class RedisCron:
    """The verbs of the crontab. Each is one script at least, and none joins a transaction of the caller's."""

    def __init__(self, run: Callable[..., Any], *, close: Callable[[], None] = lambda: None) -> None:
        """``run`` runs a script by its name."""
        self._run = run
        self._close = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        """Return the entries of these names, or all, by name."""
        wanted = sorted({str(name) for name in (self._run("cron_names") if names is None else names)})
        found: list[CronEntry] = []
        for start in range(0, len(wanted), _PAGE):
            found += _entries(self._run("cron_entries", *wanted[start : start + _PAGE]))
        return found

    def due(self, *, now: datetime | None = None) -> Due:
        """Return the entries that are due or have no next time yet."""
        at, coming, *rest = self._run("cron_due", clock(now))
        entries = sorted(_entries(rest), key=lambda entry: (entry.next_at is not None, entry.next_at or 0, entry.id))
        next_in = None if coming is None else (int(coming) - int(at)) / 1_000_000
        return Due(cast(datetime, _time(at)), entries, next_in)
