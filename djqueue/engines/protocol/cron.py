"""Store the crontab and its history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Protocol

from djqueue.cron.entry import CronDefinition, CronEntry, CronTick, Declaration, Due, NewTick, SeenDeclaration, Ticked
from djqueue.engines.protocol.session import Session
from djqueue.jobs.records import LIVE_ONLY, NewJob, UniqueRule


class CronStore(Session, Protocol):
    """The crontab: what runs when, and what became of each time.

    Any number of schedulers may work on it: each nominal time of an entry is acted upon once.
    """

    def entries(self, names: Collection[str] | None = None) -> list[CronEntry]:
        """Return the entries of these names, or all, by name."""

    def due(self, *, now: datetime | None = None) -> Due:
        """Return the active entries that are due or have no next time yet; never those of ``@reboot``."""

    def plan(self, entry: CronEntry, next_at: datetime | None, *, now: datetime | None = None) -> None:
        """Store when an entry is due, unless something happened to it; None: never again."""

    def tick(
        self, tick: NewTick, job: NewJob | None, *, rule: UniqueRule = LIVE_ONLY, now: datetime | None = None
    ) -> Ticked:
        """Act upon one nominal time, once: insert its job, write the tick and move the entry on, all of it or nothing.

        ``rule`` decides about a job whose unique key is held, as in ``Inserter.insert``; a duplicate is a skipped time.

        Stale, and nothing done, when the entry is not as it was read.
        """

    def run(
        self, entry: CronEntry, job: NewJob, *, rule: UniqueRule = LIVE_ONLY, by: str = "", now: datetime | None = None
    ) -> Ticked:
        """Insert a job of the entry at once, whatever its schedule says, and write down who asked."""

    def add(
        self,
        name: str,
        definition: CronDefinition,
        *,
        code: CronDefinition | None = None,
        by: str = "",
        now: datetime | None = None,
    ) -> bool:
        """Add an entry; False when the name is taken."""

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
        """Change an entry; False when somebody else changed it since it was read.

        A changed rule, a resumed and an enabled entry are planned anew, from now.
        """

    def remove(self, entry: CronEntry) -> bool:
        """Remove an entry with its history; False when it is gone already."""

    def declare(
        self, declaration: Declaration, *, kept: timedelta, now: datetime | None = None
    ) -> list[SeenDeclaration]:
        """Write down which entries a scheduler's code has; return all declarations, this one too.

        Those that were not renewed for ``kept`` are forgotten.
        """

    def ticks(self, entry: CronEntry, limit: int = 100) -> list[CronTick]:
        """Return the history of an entry, newest first."""

    def prune(self, age: timedelta, limit: int = 5000, *, now: datetime | None = None) -> int:
        """Delete ticks that are older; return how many went. No time runs again for it."""
