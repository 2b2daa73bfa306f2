"""What the code of this process says about the crontab, beside what the code of other processes says.

During a deploy, and where two deployments share a store, schedulers have read different code. Each writes down which entries
its code has, and says so again every few seconds. From these declarations follows

- that an entry is disabled only when for ``KEPT`` no scheduler has declared it,
- that of two schedulers which declare an entry differently the one that started last is right. Both are named in a warning if
  that lasts,
- that a scheduler leaves the times of an entry alone that only others declare. Those that have read its code act upon it, also
  without the lead; what nobody acted upon meanwhile was missed, and the entry's ``misfire`` decides.
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
from typing import Any
from uuid import uuid4

from djqueue import stores, telemetry
from djqueue.cron.entry import CronDefinition, CronEntry, Declaration, SeenDeclaration
from djqueue.engines.protocol import CronStore
from djqueue.exceptions import EngineBusy
from djqueue.tasks import registry
from djqueue.tasks.task import Task

DECLARE_SECONDS = 10.0
KEPT = timedelta(minutes=5)
"""So long after its last word a scheduler may come back: it is being restarted."""
LIVING = timedelta(seconds=30)
DISPUTE_SECONDS = 60.0
"""A deploy that goes from one node to the next takes so long without being a dispute."""


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
        self._is_settled = False
        self._disputes: dict[tuple[str, str], float] = {}
        """Entry and other scheduler → since when, by the monotonic clock; infinity: it was told."""

    @property
    def is_read(self) -> bool:
        """Whether this process has read its code."""
        return self._own is not None

    def read(self, now: datetime | None) -> None:
        """Read the code and bring its entries into the store; what somebody changed there stays as they left it."""
        self._failed = registry.autodiscover()
        self._own = self._read()
        self._declared = float("-inf")
        self.renew(now, leads=True)
        for entry in self._engine.entries():
            if entry.disabled_at is None and entry.drift:
                telemetry.emit("djqueue.cron.drift", entry=entry.name, fields=", ".join(entry.drift))

    def renew(self, now: datetime | None, *, leads: bool) -> None:
        """Declare the entries again when it is time for it, and as the leader bring the store to what all declare."""
        if self._own is None:
            return
        is_due = time.monotonic() - self._declared >= DECLARE_SECONDS
        if is_due:
            self._declare(self._own, now)
        if leads and (is_due or not self._is_settled):
            self._bring_in(self._own, now)

    def is_left_to_others(self, entry: CronEntry) -> bool:
        """Whether the entry is of code that this process does not have and another one has."""
        if self._own is None or entry.code is None or entry.name in self._own:
            return False
        return self._is_declared_elsewhere(entry.name)

    def has(self, entry: CronEntry) -> bool:
        """Whether the code of this process has the entry."""
        return self._own is not None and entry.code is not None and entry.name in self._own

    def is_better_known(self, entry: CronEntry) -> bool:
        """Whether another process declares the entry as it is stored, and this one does not."""
        if self._own is None or entry.code is None:
            return False
        own = self._own.get(entry.name)
        stored = _print(entry.code)
        if own is not None and _print(own) == stored:
            return False
        return any(other.entries.get(entry.name) == stored for other in self._others)

    def _declare(self, own: Mapping[str, CronDefinition], now: datetime | None) -> None:
        entries = {name: _print(definition) for name, definition in own.items()}
        try:
            seen = self._engine.declare(Declaration(self._id, self._name, entries), kept=KEPT, now=now)
        except EngineBusy:
            return
        self._declared = time.monotonic()
        self._started_at = next(one.started_at for one in seen if one.id == self._id)
        self._others = [one for one in seen if one.id != self._id]

    def _bring_in(self, own: Mapping[str, CronDefinition], now: datetime | None) -> None:
        """Add, change and disable entries; again with the next look where another transaction changes one of them."""
        stored = {entry.name: entry for entry in self._engine.entries()}
        self._is_settled = True
        for name in sorted({*own, *stored}):
            try:
                self._is_settled &= self._bring_in_one(name, stored.get(name), own.get(name), now)
            except EngineBusy:
                self._is_settled = False

    def _bring_in_one(
        self, name: str, entry: CronEntry | None, definition: CronDefinition | None, now: datetime | None
    ) -> bool:
        """Return False if somebody else changed the entry since it was read."""
        if definition is not None:
            if entry is None:
                return self._engine.add(name, definition, code=definition, by="code", now=now)
            if entry.code is None:
                self._tell_once("djqueue.cron.name_taken", name, task=definition.task)
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
        """Whether a living scheduler that started later declares the entry otherwise; tell of it if that lasts."""
        own = _print(definition)
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

    def _tell_once(self, event: str, name: str, **fields: Any) -> None:
        if self._disputes.setdefault((name, event), 0.0) == 0.0:
            self._disputes[name, event] = float("inf")
            telemetry.emit(event, logging.WARNING, entry=name, **fields)

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


def _print(definition: CronDefinition) -> str:
    text = json.dumps(definition.as_json(), sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()
