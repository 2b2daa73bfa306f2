"""Fetch jobs for the lanes that have room, and sleep when there are none.

One thread owns the fetching connection and the listener. A round: fetch for every lane with room; if its queues gave
less than was asked for, mark them, look once more and only then sleep until somebody makes a job available, a slot is
free, or the poll interval has passed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from uuid import UUID

from djqueue import registry, telemetry
from djqueue.encoding import storable
from djqueue.engines.protocol import Listener, WorkerEngine, put_back
from djqueue.exceptions import EngineUnavailable, UnknownTask
from djqueue.records import Ack, ClaimedJob
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.lanes import PATIENCE_SECONDS, Execution, Lane
from djqueue.runtime.outcomes import for_job
from djqueue.service import Service
from djqueue.states import JobState

FETCH_LIMIT = 500
SILENCE_SECONDS = 6.0
"""Without a beat for so long the worker fetches nothing: others may soon take it for dead."""
DOUBT_SECONDS = (10.0, 50.0)
"""After a fetch without an answer the worker looks for claims that it does not know of: as soon as the store answers, and so
long after it again. Without a connection the server may go on with a statement, and the network deliver one late."""
WATCH_SECONDS = 1.0
PARK_SECONDS = 30.0
"""How long a job of an unknown task waits before a worker looks at it again."""


class Producer(Service):
    name = "producer"

    def __init__(
        self,
        worker: UUID,
        engine: WorkerEngine,
        listener: Listener,
        lanes: Sequence[Lane],
        acker: Acker,
        claims: ClaimBlock,
        canceller: Canceller,
        *,
        poll_interval_seconds: float,
        at_most_once: Collection[str] = (),
        max_jobs: int | None = None,
        drain: bool = False,
        on_finished: Callable[..., None] = lambda *, is_drained: None,
    ) -> None:
        """``on_finished(is_drained=…)`` is called when ``max_jobs`` have ended or, with ``drain``, nothing is left to run."""
        super().__init__()
        self._worker = worker
        self._engine = engine
        self._listener = listener
        self._lanes = lanes
        self._acker = acker
        self._claims = claims
        self._canceller = canceller
        self._poll_interval = poll_interval_seconds
        self._at_most_once = at_most_once
        self._remaining = max_jobs
        self._drain = drain
        self._on_finished = on_finished
        self._rotation = 0
        self._doubts: list[float] = []
        """The pauses before each further look for claims of ours that we do not know of."""
        self._doubt_after = 0.0
        self._is_awake = True
        """Whether there was work a moment ago. Only a producer that is not awake holds a mark of a queue."""
        self._from_start: set[str] = set()
        """Queues into which a job was put back."""
        self._watched: float | None = None
        """When we last marked the names by which we are told of that; None: no need to."""

    def wake(self) -> None:
        self._listener.interrupt()

    def run_once(self) -> float:
        """Fetch until nothing is left or no lane has room; then sleep."""
        self._hand_back_stranded()
        self._settle_doubts()
        self._canceller.heed()
        if self._claims.seconds_since_beat() > SILENCE_SECONDS:
            self._listener.wait(self._poll_interval)
            return 0
        hungry = self._fetch_round()
        if self._is_finished(hungry):
            self._on_finished(is_drained=self._remaining != 0)
            self._listener.wait(self._poll_interval)
        elif self._drain or not hungry:
            self._wait_for_room()
        elif self._is_awake:
            # Mark first, then look once more: whoever enqueues after that look sees the mark.
            self._is_awake = False
            self._listener.mark(hungry)
        else:
            self._sleep(hungry)
        return 0

    def on_stop(self) -> None:
        """Give back what was claimed and has not begun."""
        for lane in self._lanes:
            self._hand_back(lane.take_back())
        with suppress(EngineUnavailable):
            self._settle_doubts(at_once=True)
        self._listener.close()
        self._engine.close()

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store may hold a claim of ours that nobody knows of."""
        return bool(self._doubts)

    def _fetch(self, queue: str, limit: int) -> Sequence[ClaimedJob]:
        try:
            if queue in self._at_most_once:
                return self._engine.take(queue, limit, self._worker)
            jobs = self._engine.fetch(queue, limit, self._worker, from_start=queue in self._from_start)
        except Exception:
            # Perhaps only the answer was lost, and the jobs are ours. Nobody takes them from a worker that lives.
            self._doubts = [*DOUBT_SECONDS, 0.0]
            self._doubt_after = 0.0
            raise
        self._from_start.discard(queue)
        return jobs

    def _settle_doubts(self, *, at_once: bool = False) -> None:
        """Put back what the store thinks we have, and we have not."""
        while self._doubts and (at_once or self._doubt_after <= time.monotonic()):
            rescued = self._engine.rescue([self._worker], ran={}, kept=self._claims.claims())
            if rescued.count:
                telemetry.emit("djqueue.job.unclaimed", logging.WARNING, count=rescued.count)
                self._from_start.update(rescued.queues)
            self._doubt_after = time.monotonic() + self._doubts.pop(0)
            if at_once:
                self._doubts.clear()

    def _fetch_round(self) -> list[str]:
        """Fetch for every lane until it is full or its queues are empty; return the queues that are."""
        hungry: list[str] = []
        found = False
        self._watch_skipped()
        for lane in self._lanes:
            queues = self._rotated(lane.queues)
            while queues and not self.is_stopping:
                limit = min(lane.room(), FETCH_LIMIT, self._claims.room)
                if self._remaining is not None:
                    limit = min(limit, self._remaining)
                if limit <= 0:
                    break
                jobs = self._fetch(queues[0], limit)
                if jobs:
                    found = True
                    self._accept(lane, jobs)
                if len(jobs) < limit:
                    # Fewer than asked for: this queue is empty for now, unless it was locked rows we passed over.
                    hungry.append(queues.pop(0))
        if found and not self._is_awake:
            self._is_awake = True
            self._listener.unmark()
        return hungry

    def _watch_skipped(self) -> None:
        """Where fetches pass over jobs that were put back, ask to be told of them."""
        skipping = self._engine.skipping
        if not skipping:
            # The mark of a sleep must stand until it ends: there is no look after it.
            if self._watched is not None and self._is_awake:
                self._watched = None
                self._listener.unmark()
        elif self._watched is None or time.monotonic() - self._watched > WATCH_SECONDS:
            # Again and again, for marks that went with those of a sleep, or that another worker had.
            self._watched = time.monotonic()
            self._listener.mark([put_back(queue) for queue in skipping])

    def _rotated(self, queues: list[str]) -> list[str]:
        """Begin with another queue each time, so that a full one does not starve the others of its lane."""
        self._rotation += 1
        start = self._rotation % len(queues)
        return queues[start:] + queues[:start]

    def _accept(self, lane: Lane, jobs: Sequence[ClaimedJob]) -> None:
        now = time.monotonic()
        executions = []
        for job in jobs:
            place = self._claims.hold(job.id, job.claim)
            try:
                task = registry.find(job.task)
            except UnknownTask as error:
                telemetry.emit("djqueue.job.unknown", logging.WARNING, job=job.id, task=job.task, error=str(error))
                # Back with a visible reason and its attempt, until a worker knows it; others wait behind nothing.
                note = json.dumps({"parked": storable(error, 500)})
                ack = Ack(job.id, job.claim, JobState.SCHEDULED, delay=PARK_SECONDS, is_spent=False, note=note)
                self._acker.put(for_job(ack, job), place)
            else:
                executions.append(Execution(job, task, task.is_async, place, now))
        if self._remaining is not None:
            self._remaining -= len(jobs)
        if executions:
            lane.add(executions)

    def _sleep(self, hungry: Sequence[str]) -> None:
        """Wait until somebody makes a job available, marked all the while."""
        # Where another sleeper has the mark of a queue, its wake-up reaches us too; it may have gone since.
        self._listener.mark(hungry)
        if self._wait():
            # Away with the mark before the fetch: we are awake, and another sleeper can take it.
            self._is_awake = True
            self._listener.unmark()

    def _wait_for_room(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._listener.unmark()
        self._wait()

    def _wait(self) -> bool:
        """Wait for a wake-up, for room or for the poll interval; return whether there was a wake-up."""
        timeout = self._poll_interval
        full = [lane for lane in self._lanes if lane.room() <= 0]
        for lane in full:
            lane.on_room = self._listener.interrupt
        if any(lane.room() > 0 for lane in full):
            timeout = 0  # room came between the question and the answer
        elif any(lane.has_waiting for lane in self._lanes):
            timeout = min(timeout, PATIENCE_SECONDS)
        woken = self._listener.wait(timeout)
        for lane in full:
            lane.on_room = None
        self._canceller.heed(woken)
        self._from_start |= {queue for lane in self._lanes for queue in lane.queues if put_back(queue) in woken}
        return bool(woken)

    def _is_finished(self, hungry: Sequence[str]) -> bool:
        if self._claims.held:
            return False
        if self._remaining == 0:
            return True
        # With nothing held every lane had room, so every queue was asked, and gave less than it was asked for.
        if not self._drain or self._engine.stage().count:
            return False
        self._fetch_round()
        return not self._claims.held

    def _hand_back_stranded(self) -> None:
        for lane in self._lanes:
            if lane.has_waiting:
                self._hand_back(lane.take_back(older_than=PATIENCE_SECONDS))

    def _hand_back(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            job = execution.job
            ack = Ack(job.id, job.claim, JobState.AVAILABLE, is_spent=False)
            self._acker.put(for_job(ack, job), execution.place)
