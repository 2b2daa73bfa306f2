"""Take jobs back from workers that are gone.

Two ways lead here. A supervisor reports its own dead child, with what the child had begun: its jobs are back within
a second. A machine that fell silent, or lost supervisor and child together, is seen by the leader, which knows less: what ran
for some seconds its heart has noted in the store (``runtime/heart.py``), and has spent its attempt. The rest was begun
just before, or never. It goes back unspent, once without knowing: from then on its start is noted before it is called. So
what never started never spends an attempt, and a job that kills its machine comes to an end.

Neither is proof that nothing of the worker is still on its way: a claim that it sent may commit later. So its
connections are ended where they can be told apart, and its row
stays, marked as dead, until a rescue that began ten seconds later found nothing; and once a minute, and when a new
leader begins, the leader looks for claims of workers that have no row at all.
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
from djqueue.engines.protocol import WorkerEngine
from djqueue.exceptions import EngineBusy
from djqueue.jobs.records import Rescued
from djqueue.maintenance.leader import Leader
from djqueue.maintenance.silence import AFTERMATH_SECONDS
from djqueue.service import Service

LOOK_SECONDS = 1.0
SWEEP_SECONDS = 60.0
BATCH_LIMIT = 5000


class Lost(NamedTuple):
    """A worker that its supervisor saw die."""

    worker: UUID
    ran: Mapping[int, int] | None
    """Job id → claim of what had begun. None: not known but from the store, see ``note_begun``."""
    reason: str
    beat: int | None = None
    """The beat at which it stood still. It lives if it has beaten since. None: it is dead whatever its beat says."""


class Lifeline(Service):
    name = "lifeline"

    def __init__(
        self,
        engine: WorkerEngine,
        leader: Leader,
        *,
        silent: Callable[[], Mapping[UUID, int]],
        dead: Callable[[], list[UUID]],
    ) -> None:
        """``silent`` tells which workers have stopped beating, and at which beat; ``dead``, which are marked as dead already."""
        super().__init__()
        self._engine = engine
        self._leader = leader
        self._silent = silent
        self._dead = dead
        self._reports: deque[Lost] = deque()
        """A report is removed only after its rescue, so that ``has_reports`` has no gap in which a successor may start."""
        self._told: set[UUID] = set()
        """Workers of whose silence the log tells already: it lasts until their next look at the beats."""
        self._unfinished: dict[UUID, Lost] = {}
        """Whose jobs, or whose row, another transaction holds: to be tried again with each look."""
        self._dead_since: dict[UUID, float] = {}
        self._swept_term = -1
        self._swept_at = 0.0
        self.last_run: float | None = None
        """When the leader last looked after everybody, by the monotonic clock."""

    def report(self, lost: Lost) -> None:
        """Rescue the jobs of this worker as soon as possible; from any thread."""
        self._reports.append(lost)
        self.wake()

    @property
    def has_reports(self) -> bool:
        return bool(self._reports)

    def run_once(self) -> float:
        """Rescue what was reported, then, as the leader, look after everybody else."""
        self._rescue_reported()
        if self._leader.is_leader:
            self._rescue_silent()
            self._bury_for_good()
            self._sweep()
            self.last_run = time.monotonic()
        return LOOK_SECONDS

    def on_stop(self) -> None:
        self._engine.close()

    def _rescue_reported(self) -> None:
        for lost in list(self._unfinished.values()):
            self._take_back(lost)
        while self._reports:
            # Removed only when it is done: a failure in between tries again.
            self._take_back(self._reports[0])
            self._reports.popleft()

    def _rescue_silent(self) -> None:
        told: set[UUID] = set()
        for worker, beat in self._silent().items():
            if worker not in self._told:
                telemetry.emit("djqueue.worker.silent", logging.ERROR, worker=worker)
            told.add(worker)
            self._take_back(Lost(worker, None, "The worker's machine fell silent.", beat))
        self._told = told

    def _take_back(self, lost: Lost) -> None:
        """Bury a worker and rescue its jobs; what another transaction holds is left for the next look."""
        self._unfinished[lost.worker] = lost
        try:
            if self._engine.bury({lost.worker: lost.beat}):
                # It woke up between our last look and now, and was told that all is well: it goes on with its jobs.
                self._unfinished.pop(lost.worker, None)
                return
            self._engine.disconnect([lost.worker])
            rescued = self._rescue(lost.worker, lost.ran, lost.reason)
        except EngineBusy:
            return
        if not rescued.left:
            self._unfinished.pop(lost.worker, None)

    def _bury_for_good(self) -> None:
        now = time.monotonic()
        dead = self._dead()
        self._dead_since = {worker: self._dead_since.get(worker, now) for worker in dead}
        for worker, since in self._dead_since.items():
            if now - since < AFTERMATH_SECONDS or worker in self._unfinished:
                continue
            # What comes back now was never handed to a function of ours: a claim that committed after the death.
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
