"""Register workers in the store, and delete the rows of those that have left.

In a thread of its own: a store that accepts a connection and then does not answer must not keep the supervisor from
reacting to a signal.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import Engine
from djqueue.exceptions import EngineDenied, EngineUnavailable
from djqueue.jobs.records import WorkerInfo
from djqueue.reminders import Reminder
from djqueue.service import Service

_IDLE_SECONDS = 3600.0
_RETRY_SECONDS = 1.0


class Registrar(Service):
    name = "registrar"

    def __init__(self, engine: Engine, *, on_change: Callable[[], None]) -> None:
        """``on_change`` is called, in the registrar's thread, when a worker is registered or all are refused."""
        super().__init__()
        self._store = engine.store
        self._engine = engine.open_registrar()
        self._on_change = on_change
        self._arriving: deque[WorkerInfo] = deque()
        self._leaving: deque[UUID] = deque()
        self._registered: set[UUID] = set()
        self._is_inspected = False
        self._reminder = Reminder()
        self.is_refused = False
        """Whether no worker may or can run on this store; the log says why."""

    def register(self, worker: WorkerInfo) -> None:
        """Write the row of a worker; from any thread."""
        self._arriving.append(worker)
        self.wake()

    def deregister(self, worker: UUID) -> None:
        """Delete the row of a worker that leaves nothing behind, if it has one; from any thread."""
        self._leaving.append(worker)
        self.wake()

    def is_registered(self, worker: UUID) -> bool:
        return worker in self._registered

    @property
    def has_work(self) -> bool:
        return bool(self._leaving)

    def run_once(self) -> float:
        """Write and delete the rows that were asked for; return the seconds until the next try."""
        try:
            while self._arriving and not self.is_refused:
                if self._arriving[0].id not in self._leaving and self._admit():
                    self._engine.register([self._arriving[0]])
                    self._registered.add(self._arriving[0].id)
                    self._on_change()
                self._arriving.popleft()
        except EngineUnavailable as error:
            if isinstance(error, EngineDenied) and not self._registered:
                self._refuse(str(error), "Correct the settings or the permissions, then start again.")
            elif self._reminder.is_due(str(error)):
                telemetry.emit("djqueue.supervisor.waiting", logging.WARNING, error=str(error))
        else:
            self._reminder.forget()
        while self._leaving:
            # Twice: the connection may have ended since it was last used. Without an answer the row stays and becomes silent,
            # and the lifeline finds nothing to rescue.
            for _ in range(2):
                with suppress(EngineUnavailable):
                    self._engine.deregister([self._leaving[0]])
                    break
            self._leaving.popleft()
        return _RETRY_SECONDS if self._arriving else _IDLE_SECONDS

    def on_stop(self) -> None:
        self._engine.close()

    def _admit(self) -> bool:
        """Inspect the server once, before the first worker may fetch; refuse if no worker may run there."""
        if not self._is_inspected:
            inspection = self._engine.inspect()
            self._is_inspected = True
            level = logging.WARNING if inspection.concerns else logging.INFO
            telemetry.emit("djqueue.store.seen", level, store=self._store, server=inspection.server, **inspection.about)
            for concern in inspection.concerns:
                if concern.is_fatal:
                    self._refuse(concern.text, concern.hint)
                else:
                    telemetry.emit("djqueue.store.concern", logging.WARNING, what=concern.text, advice=concern.hint)
        return not self.is_refused

    def _refuse(self, what: str, advice: str) -> None:
        telemetry.emit("djqueue.store.concern", logging.CRITICAL, what=what, advice=advice)
        self.is_refused = True
        self._on_change()
