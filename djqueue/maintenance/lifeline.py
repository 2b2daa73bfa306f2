"""Rescue the jobs of workers that have died.

A supervisor reports its own dead child with the jobs that had started there: they are rescued within a second. If a machine
becomes silent, or supervisor and child die together, the leader notices, and knows less. Jobs that had run for some seconds
were recorded in the store with a heartbeat (``runtime/heartbeat.py``), and have spent their attempt. The others started just
before, or never. They get their attempt back, but only once: from then on their start is recorded before the function is
called. So a job that never started never spends an attempt, and a job that kills its machine does not run forever.

Neither is proof that the worker has no statement on its way: a claim that it sent may commit later. So its connections are
ended where they can be identified, and its row stays, marked as dead, until a rescue that began ten seconds later finds
nothing. Once a minute, and when a new leader begins, the leader also looks for claims of workers without a row.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import Maintainer
from djqueue.exceptions import EngineBusy
from djqueue.jobs.records import Rescued
from djqueue.jobs.silence import AFTERMATH_SECONDS
from djqueue.maintenance.leader import Leader
from djqueue.service import Service

LOOK_SECONDS = 1.0
SWEEP_SECONDS = 60.0
BATCH_LIMIT = 5000


class Lost(NamedTuple):
    """A worker whose jobs have to be rescued."""

    worker: UUID
    ran: Mapping[int, int] | None
    """Job id → claim of the jobs that had started. None: only the store knows, see ``note_begun``."""
    reason: str
    beat: int | None = None
    """The last counter that was read. The worker lives if the counter has changed since. None: it is dead in any case."""


class Lifeline(Service):
    name = "lifeline"

    def __init__(
        self,
        engine: Maintainer,
        leader: Leader,
        *,
        silent: Callable[[], Mapping[UUID, int]],
        dead: Callable[[], list[UUID]],
    ) -> None:
        """``silent`` returns the workers without heartbeats, each with its last counter; ``dead`` those that are marked as dead."""
        super().__init__()
        self._engine = engine
        self._leader = leader
        self._silent = silent
        self._dead = dead
        self._reports: deque[Lost] = deque()
        """A report is removed only after its rescue, so that no successor can start before ``has_reports`` is false."""
        self._reported_silent: set[UUID] = set()
        """Workers whose silence was logged already."""
        self._unfinished: dict[UUID, Lost] = {}
        """Workers with jobs, or a row, that another transaction holds: retried with each look."""
        self._dead_since: dict[UUID, float] = {}
        self._swept_term = -1
        self._swept_at = 0.0

    def report(self, lost: Lost) -> None:
        """Rescue the jobs of this worker as soon as possible; from any thread."""
        self._reports.append(lost)
        self.wake()

    @property
    def has_reports(self) -> bool:
        return bool(self._reports)

    def run_once(self) -> float:
        """Rescue the jobs of reported workers, then, as the leader, those of all others."""
        self._rescue_reported()
        if self._leader.is_leader:
            self._rescue_silent()
            self._delete_dead()
            self._sweep()
            self.last_run = time.monotonic()
        return LOOK_SECONDS

    def on_stop(self) -> None:
        self._engine.close()

    def _rescue_reported(self) -> None:
        for lost in list(self._unfinished.values()):
            self._bury_and_rescue(lost)
        while self._reports:
            # Removed after the rescue, so that a failure is retried.
            self._bury_and_rescue(self._reports[0])
            self._reports.popleft()

    def _rescue_silent(self) -> None:
        reported: set[UUID] = set()
        for worker, beat in self._silent().items():
            if worker not in self._reported_silent:
                telemetry.emit("djqueue.worker.silent", logging.ERROR, worker=worker)
            reported.add(worker)
            self._bury_and_rescue(Lost(worker, None, "The worker's machine sent no heartbeats any more.", beat))
        self._reported_silent = reported

    def _bury_and_rescue(self, lost: Lost) -> None:
        """Mark a worker as dead and rescue its jobs; what another transaction holds is left for the next look."""
        self._unfinished[lost.worker] = lost
        try:
            if self._engine.bury({lost.worker: lost.beat}):
                # It has sent a heartbeat since the last look, and continues with its jobs.
                self._unfinished.pop(lost.worker, None)
                return
            self._engine.disconnect([lost.worker])
            rescued = self._rescue(lost.worker, lost.ran, lost.reason)
        except EngineBusy:
            return
        if not rescued.left:
            self._unfinished.pop(lost.worker, None)

    def _delete_dead(self) -> None:
        now = time.monotonic()
        dead = self._dead()
        self._dead_since = {worker: self._dead_since.get(worker, now) for worker in dead}
        for worker, since in self._dead_since.items():
            if now - since < AFTERMATH_SECONDS or worker in self._unfinished:
                continue
            # What is rescued now never started: its claim was committed after the worker had died.
            with suppress(EngineBusy):
                rescued = self._rescue(worker, {}, "")
                if not rescued.count and not rescued.left:
                    self._engine.deregister([worker])

    def _sweep(self) -> None:
        now = time.monotonic()
        if self._leader.term != self._swept_term or now - self._swept_at >= SWEEP_SECONDS:
            self._note(None, self._engine.rescue_ownerless(limit=BATCH_LIMIT))
            self._swept_term, self._swept_at = self._leader.term, now

    def _rescue(self, worker: UUID, ran: Mapping[int, int] | None, reason: str) -> Rescued:
        requeued = discarded = cancelled = 0
        while True:
            part = self._engine.rescue([worker], ran=ran, as_noted=ran is None, reason=reason, limit=BATCH_LIMIT)
            requeued += part.requeued
            discarded += part.discarded
            cancelled += part.cancelled
            if part.count < BATCH_LIMIT:
                break
        total = Rescued(requeued, discarded, cancelled=cancelled, left=part.left)
        self._note(worker, total)
        return total

    @staticmethod
    def _note(worker: UUID | None, rescued: Rescued) -> None:
        if rescued.count:
            telemetry.emit(
                "djqueue.job.rescued",
                logging.WARNING,
                worker=worker,
                requeued=rescued.requeued,
                discarded=rescued.discarded,
                cancelled=rescued.cancelled,
            )
