"""Store the crontab and its history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Declaration, Due, NewTick, SeenDeclaration, Ticked
from djqueue.engines.protocol.session import Session
from djqueue.jobs.records import LIVE_ONLY, NewJob, UniqueRule


class CronStore(Session, Protocol):
    """The crontab: what runs when, and the outcome of each nominal time.

    Any number of schedulers may use it: each nominal time of an entry is handled once.
    """

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        """Return the entries of these names, or all, by name."""

    def due(self, *, now: datetime | None = None) -> Due:
        """Return the active entries that are due or have no next time yet, without ``@reboot`` entries."""

    def plan(self, entry: CronEntry, next_at: datetime | None, *, now: datetime | None = None) -> None:
        """Store when an entry is next due (None: never again), unless the entry has changed since it was read."""

    def tick(
        self, tick: NewTick, job: NewJob | None, *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> Ticked:
        """Handle one nominal time, once: insert its job, record the tick and advance the entry, all or nothing.

        ``rule`` applies to a job whose unique key is held, as in ``Inserter.insert``; a duplicate is a skipped time.

        If the entry has changed since it was read, nothing is done and the outcome is stale.
        """

    def run(
        self, entry: CronEntry, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, by: str = "", now: datetime | None = None
    ) -> Ticked:
        """Insert a job of the entry at once, regardless of its schedule, and record who requested it."""

    def add(
        self,
        name: str,
        definition: CronDefinition,
        *,
        code: CronDefinition | None = None,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        """Add an entry; return False if the name is taken."""

    def change(
        self,
        entry: CronEntry,
        definition: CronDefinition,
        *,
        code: CronDefinition | None,
        is_paused: bool,
        pause_reason: str = "",
        is_disabled: bool = False,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        """Change an entry; return False if it was changed since it was read.

        An entry that is resumed, enabled or given another rule is planned anew, from now.
        """

    def remove(self, entry: CronEntry) -> bool:
        """Remove an entry with its history; return False if it does not exist any more."""

    def declare(
        self, declaration: Declaration, *, kept: timedelta, now: datetime | None = None
    ) -> list[SeenDeclaration]:
        """Record which entries a scheduler's code declares; return all declarations, including this one.

        Declarations that were not renewed for ``kept`` are deleted.
        """

    def ticks(self, entry: CronEntry, limit: int = 100) -> list[CronTick]:
        """Return the history of an entry, newest first."""

    def prune(self, age: timedelta, limit: int = 5000, *, now: datetime | None = None) -> int:
        """Delete ticks older than ``age``, up to ``limit``; return how many. No nominal time runs again because of it."""
