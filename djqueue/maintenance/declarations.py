"""Compare the cron entries in the code of this process with those in the code of other schedulers.

During a deploy, and where two deployments share a store, schedulers have read different code. Each stores which entries
its code declares, and repeats that every few seconds. From these declarations follow three rules:

- An entry is disabled only if no scheduler has declared it for ``KEPT``.
- If two schedulers declare an entry differently, the one that started last applies. A warning names both if that lasts.
- A scheduler does not act on an entry that only others declare. Those that have read its code act on it, also without being
  the leader. Times at which none of them acted were missed, and the entry's ``misfire`` decides.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from uuid import uuid4

from djqueue import stores, telemetry
from djqueue.cron.entry import CronDefinition, CronEntry, Declaration, SeenDeclaration
from djqueue.engines.protocol import CronStore
from djqueue.exceptions import EngineBusy
from djqueue.tasks import registry
from djqueue.tasks.task import Task

DECLARE_SECONDS = 10.0
KEPT = timedelta(minutes=5)
"""A declaration is valid for this long after the last one of its scheduler, which may be restarting."""
LIVING = timedelta(seconds=30)
DISPUTE_SECONDS = 60.0
"""A rolling deploy may take this long without being reported as a dispute."""


class Declarations:
    def __init__(self, engine: CronStore, store: str) -> None:
        self._engine = engine
        self._store = store
        self._id = uuid4()
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._failed: Mapping[str, str] = {}
        self._own: Mapping[str, CronDefinition] | None = None
        self._started_at: datetime | None = None
        self._others: list[SeenDeclaration] = []
        self._declared = float("-inf")
        self._is_up_to_date = False
        self._disputes: dict[tuple[str, str], float] = {}
        """Entry and other scheduler → start of the dispute, by the monotonic clock; infinity once it was reported."""
        self._taken_names: set[str] = set()
        """Entries whose name was reported as taken."""

    @property
    def is_read(self) -> bool:
        """Whether this process has read its own code."""
        return self._own is not None

    def read(self, now: datetime | None) -> None:
        """Read the code and store its entries; what operators changed there is kept."""
        self._failed = registry.autodiscover()
        self._own = self._read()
        self._declared = float("-inf")
        self.renew(now, leads=True)
        for entry in self._engine.entries():
            if entry.disabled_at is None and entry.drift:
                telemetry.emit("djqueue.cron.drift", entry=entry.name, fields=", ".join(entry.drift))

    def renew(self, now: datetime | None, *, leads: bool) -> None:
        """Declare the entries again if that is due, and as the leader update the store to what all schedulers declare."""
        if self._own is None:
            return
        is_due = time.monotonic() - self._declared >= DECLARE_SECONDS
        if is_due:
            self._declare(self._own, now)
        if leads and (is_due or not self._is_up_to_date):
            self._update_store(self._own, now)

    def is_left_to_others(self, entry: CronEntry) -> bool:
        """Return whether only the code of another process declares the entry."""
        if self._own is None or entry.code is None or entry.name in self._own:
            return False
        return self._is_declared_elsewhere(entry.name)

    def has(self, entry: CronEntry) -> bool:
        """Return whether the code of this process declares the entry."""
        return self._own is not None and entry.code is not None and entry.name in self._own

    def is_better_known(self, entry: CronEntry) -> bool:
        """Return whether another process declares the entry as it is stored, and this one does not."""
        if self._own is None or entry.code is None:
            return False
        own = self._own.get(entry.name)
        stored = _fingerprint(entry.code)
        if own is not None and _fingerprint(own) == stored:
            return False
        return any(other.entries.get(entry.name) == stored for other in self._others)

    def _declare(self, own: Mapping[str, CronDefinition], now: datetime | None) -> None:
        entries = {name: _fingerprint(definition) for name, definition in own.items()}
        try:
            seen = self._engine.declare(Declaration(self._id, self._name, entries), kept=KEPT, now=now)
        except EngineBusy:
            return
        self._declared = time.monotonic()
        self._started_at = next(one.started_at for one in seen if one.id == self._id)
        self._others = [one for one in seen if one.id != self._id]

    def _update_store(self, own: Mapping[str, CronDefinition], now: datetime | None) -> None:
        """Add, change and disable entries; retry with the next look if another transaction is changing one of them."""
        stored = {entry.name: entry for entry in self._engine.entries()}
        self._is_up_to_date = True
        for name in sorted({*own, *stored}):
            try:
                self._is_up_to_date &= self._update_entry(name, stored.get(name), own.get(name), now)
            except EngineBusy:
                self._is_up_to_date = False

    def _update_entry(
        self, name: str, entry: CronEntry | None, definition: CronDefinition | None, now: datetime | None
    ) -> bool:
        """Return False if the entry was changed since it was read."""
        if definition is not None:
            if entry is None:
                return self._engine.add(name, definition, code=definition, by="code", now=now)
            if entry.code is None:
                self._report_name_taken(name, definition.task)
            elif not self._is_overruled(name, definition) and (
                entry.disabled_at is not None or entry.code.differences(definition)
            ):
                merged = entry.definition.merged(entry.code, definition)
                return self._change(entry, merged, definition, False, now)
        elif entry is not None and entry.code is not None and entry.disabled_at is None:
            is_unknown = any(entry.definition.task.startswith(f"{module}.") for module in self._failed)
            if is_unknown or self._is_declared_elsewhere(name):
                return True
            if not self._change(entry, entry.definition, entry.code, True, now):
                return False
            telemetry.emit("djqueue.cron.disabled", entry=name, task=entry.definition.task)
        return True

    def _is_declared_elsewhere(self, name: str) -> bool:
        return any(name in other.entries for other in self._others)

    def _is_overruled(self, name: str, definition: CronDefinition) -> bool:
        """Return whether a living scheduler that started later declares the entry differently; report it if that lasts."""
        own = _fingerprint(definition)
        rivals = [
            other
            for other in self._others
            if other.silent <= LIVING and other.entries.get(name, own) != own and self._started_at is not None
        ]
        for other in rivals:
            since = self._disputes.setdefault((name, other.name), time.monotonic())
            if time.monotonic() - since >= DISPUTE_SECONDS:
                self._disputes[name, other.name] = float("inf")
                newer, older = (other.name, self._name) if self._is_newer(other) else (self._name, other.name)
                telemetry.emit("djqueue.cron.dispute", logging.WARNING, entry=name, follows=newer, ignores=older)
        return any(map(self._is_newer, rivals))

    def _is_newer(self, other: SeenDeclaration) -> bool:
        assert self._started_at is not None
        return (other.started_at, other.id) > (self._started_at, self._id)

    def _report_name_taken(self, name: str, task: str) -> None:
        if name not in self._taken_names:
            self._taken_names.add(name)
            telemetry.emit("djqueue.cron.name_taken", logging.WARNING, entry=name, task=task)

    def _read(self) -> dict[str, CronDefinition]:
        declared: dict[str, CronDefinition] = {}
        for task in registry.known().values():
            if task.cron and self._is_ours(task):
                for name, definition in task.cron_definitions.items():
                    if name in declared:
                        telemetry.emit("djqueue.cron.name_taken", logging.ERROR, entry=name, task=definition.task)
                        continue
                    declared[name] = definition
        return declared

    def _is_ours(self, task: Task) -> bool:
        store = stores.find(task.backend)
        return store is not None and store.engine.store == self._store

    def _change(
        self,
        entry: CronEntry,
        definition: CronDefinition,
        code: CronDefinition,
        is_disabled: bool,
        now: datetime | None,
    ) -> bool:
        return self._engine.change(
            entry,
            definition,
            code=code,
            is_paused=entry.paused_at is not None,
            pause_reason=entry.pause_reason,
            is_disabled=is_disabled,
            by="code",
            now=now,
        )


def _fingerprint(definition: CronDefinition) -> str:
    text = json.dumps(definition.as_json(), sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
