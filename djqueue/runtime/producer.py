"""Fetch jobs for the lanes that have room, and sleep when there are none.

One thread owns the fetching connection and the listener. A round: fetch for every lane with room from the queues that
may have something; where they gave less than was asked for, have them marked, look once more if the mark is a new one,
and only then sleep until a job becomes available, a slot is free, or the poll interval has passed. See
``watch.py`` for when a queue is looked at, and when a mark goes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from uuid import UUID

from djqueue import telemetry
from djqueue.engines.protocol import Fetcher, Listener, Maintainer
from djqueue.exceptions import EngineUnavailable
from djqueue.hooks import text_of
from djqueue.jobs.records import ClaimedJob
from djqueue.jobs.silence import STOP_FETCHING_SECONDS
from djqueue.runtime.acker import Acker
from djqueue.runtime.cancels import Canceller
from djqueue.runtime.claims import ClaimBlock
from djqueue.runtime.execution import Execution
from djqueue.runtime.lanes import PATIENCE_SECONDS, Lane
from djqueue.runtime.outcomes import handed_back, parked
from djqueue.runtime.watch import FULL_SECONDS, LOOK_SECONDS, Watch
from djqueue.service import Service
from djqueue.tasks import registry

FETCH_LIMIT = 500
MISSES = 3
"""After this many queues without a job in one round, one statement checks all others: a worker may serve hundreds of idle queues."""
SILENCE_LOOK_SECONDS = 1.0
"""Between two looks whether the heartbeat works again."""
DOUBT_SECONDS = (10.0, 50.0)
"""After a fetch without an answer the worker looks for claims that it does not know: as soon as the store answers, and again
after these times. The server may finish a statement after the connection is lost, and the network may deliver one late."""
DRAIN_LOOK_SECONDS = 0.1
"""Between two looks of a draining worker that holds nothing, while the store still has something to fetch."""


class Producer(Service):
    name = "producer"

    def __init__(
        self,
        worker: UUID,
        fetcher: Fetcher,
        listener: Listener,
        lanes: Sequence[Lane],
        acker: Acker,
        claims: ClaimBlock,
        canceller: Canceller,
        *,
        poll_interval_seconds: float,
        at_most_once: Collection[str] = (),
        max_jobs: int | None = None,
        drain: Maintainer | None = None,
        on_finished: Callable[..., None] = lambda *, is_drained: None,
    ) -> None:
        """``drain``: stage what is due with this, and finish when nothing is left to run.

        ``on_finished(is_drained=…)`` is called when ``max_jobs`` have ended or, with ``drain``, nothing is left to run.
        """
        super().__init__()
        self._worker = worker
        self._fetcher = fetcher
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
        self._has_finished = False
        self.has_given_back = False
        """Whether jobs went back to the store when the producer stopped: a drain is not over."""
        self._rotation = 0
        self._doubts: list[float] = []
        """The pauses before each further look for unknown claims of this worker."""
        self._doubt_after = 0.0
        self._watches = {queue: Watch() for lane in lanes for queue in lane.queues}
        self._poll_at = 0.0
        """When every queue is fetched from, whatever its watch says, by the monotonic clock."""

    def wake(self) -> None:
        self._listener.interrupt()

    def run_once(self) -> float:
        """Fetch until nothing is left or no lane has room; then sleep."""
        if self._has_finished:
            # The worker has reported its end already, so anything fetched now would have to be handed back.
            self._listener.wait(self._poll_interval)
            return 0
        self._hand_back_stranded()
        self._resolve_doubts()
        self._canceller.check()
        if self._claims.seconds_since_beat() > STOP_FETCHING_SECONDS:
            self._listener.wait(min(self._poll_interval, SILENCE_LOOK_SECONDS))
            self._look_everywhere()
            return 0
        hungry = self._fetch_round()
        if self._is_finished(hungry):
            self._has_finished = True
            self._on_finished(is_drained=self._remaining != 0)
        elif self._drain or self._may_sleep(hungry):
            self._wait()
        return 0

    def on_stop(self) -> None:
        """Hand back the jobs that were claimed and have not started."""
        for lane in self._lanes:
            waiting = lane.take_back()
            self.has_given_back |= bool(waiting)
            self._hand_back(waiting)
        with suppress(EngineUnavailable):
            self._resolve_doubts(at_once=True)
        self._listener.close()
        self._fetcher.close()
        if self._drain is not None:
            self._drain.close()

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store may hold a claim that this worker does not know of."""
        return bool(self._doubts)

    def _fetch(self, queue: str, limit: int) -> Sequence[ClaimedJob]:
        try:
            if queue in self._at_most_once:
                return self._fetcher.take(queue, limit, self._worker)
            return self._fetcher.fetch(queue, limit, self._worker)
        except Exception:
            # Perhaps only the answer was lost, and this worker has claimed the jobs. No rescue takes them from a living worker.
            self._doubts = [*DOUBT_SECONDS, 0.0]
            self._doubt_after = 0.0
            raise

    def _resolve_doubts(self, *, at_once: bool = False) -> None:
        """Hand back the jobs that this worker has claimed in the store and does not know of."""
        while self._doubts and (at_once or self._doubt_after <= time.monotonic()):
            rescued = self._fetcher.reclaim(self._worker, self._claims.claims())
            if rescued.count:
                telemetry.emit("djqueue.job.unclaimed", logging.WARNING, count=rescued.count)
                self.has_given_back |= at_once
            self._doubt_after = time.monotonic() + self._doubts.pop(0)
            if at_once:
                self._doubts.clear()

    def _fetch_round(self) -> list[str]:
        """Fetch for every lane until it is full or its queues are empty; return the queues that are."""
        hungry: list[str] = []
        empty: Collection[str] = ()
        misses = 0
        if time.monotonic() >= self._poll_at:
            self._look_everywhere()
        for lane in self._lanes:
            queues = [queue for queue in self._rotated(lane.queues) if not self._watches[queue].is_quiet]
            while queues and not self.is_stopping:
                limit = min(lane.room(), FETCH_LIMIT, self._claims.room)
                if self._remaining is not None:
                    limit = min(limit, self._remaining)
                if limit <= 0:
                    break
                queue = queues[0]
                if queue in empty:
                    hungry.append(queues.pop(0))
                    continue
                jobs = self._fetch(queue, limit)
                if jobs:
                    self._watches[queue].note_found(len(jobs))
                    self._accept(lane, jobs)
                # Fewer than asked for: this queue is empty for now, unless locked rows were skipped, or others, which the next
                # fetch finds.
                if len(jobs) < limit and not (jobs and self._fetcher.is_partial):
                    hungry.append(queues.pop(0))
                    misses += not jobs
                    if misses == MISSES and not empty:
                        empty = self._empty_among(hungry)
        return hungry

    def _empty_among(self, known: Sequence[str]) -> Collection[str]:
        """Check all remaining queues in one statement instead of one after the other; return those without jobs."""
        others = {queue for lane in self._lanes if lane.room() > 0 for queue in lane.queues}
        others = {queue for queue in others if not self._watches[queue].is_quiet}.difference(known)
        return others - self._fetcher.ready(others, is_hint=True) if len(others) > 1 else ()

    def _look_everywhere(self) -> None:
        self._poll_at = time.monotonic() + self._poll_interval
        for watch in self._watches.values():
            watch.is_quiet = False

    def _may_sleep(self, hungry: Sequence[str]) -> bool:
        """Have the queues marked that were found empty; return whether nothing can have come in since."""
        leaving = [queue for queue in hungry if self._watches[queue].is_fast]
        calm = [queue for queue in hungry if queue not in leaving]
        now = time.monotonic()
        for lane in self._lanes:
            is_full = lane.room() <= 0
            for queue in lane.queues:
                watch = self._watches[queue]
                watch.full_since = (watch.full_since or now) if is_full else None
                if watch.full_since is not None and now - watch.full_since >= FULL_SECONDS:
                    leaving.append(queue)
        if leaving := [queue for queue in leaving if self._watches[queue].is_marked]:
            self._listener.unmark(leaving)
            for queue in leaving:
                self._watches[queue].is_marked = self._watches[queue].is_quiet = False
        if not calm:
            return True
        stood = self._listener.mark(calm)
        for queue in calm:
            self._watches[queue].is_marked = True
            # Mark first, then fetch: jobs that came before a new mark have not been looked for yet.
            self._watches[queue].is_quiet = stood
        return stood

    def _rotated(self, queues: list[str]) -> list[str]:
        """Start with another queue each time, so that a full one does not starve the others of its lane."""
        self._rotation += 1
        start = self._rotation % len(queues)
        return queues[start:] + queues[:start]

    def _accept(self, lane: Lane, jobs: Sequence[ClaimedJob]) -> None:
        now = time.monotonic()
        executions = []
        for job in jobs:
            claim_slot = self._claims.hold(job.id, job.claim)
            try:
                executions.append(Execution(job, registry.find(job.task), claim_slot, now))
            except BaseException as error:  # UnknownTask as a rule; the others of this fetch must not be lost with it
                telemetry.emit("djqueue.job.unknown", logging.WARNING, job=job.id, task=job.task, error=text_of(error))
                self._acker.put(parked(job, error), claim_slot)
        if self._remaining is not None:
            self._remaining -= len(jobs)
        if executions:
            lane.add(executions)

    def _wait(self) -> None:
        """Wait for a wake-up, for room or until it is time for a look."""
        timeout = self._pause()
        full = [lane for lane in self._lanes if lane.room() <= 0]
        for lane in full:
            lane.on_room = self._listener.interrupt
        if any(lane.room() > 0 for lane in full):
            timeout = 0  # room came between the check and the assignment
        woken = self._listener.wait(timeout)
        for lane in full:
            lane.on_room = None
        self._canceller.check(woken)
        for queue, watch in self._watches.items() if woken else ():
            if queue in woken:
                watch.is_quiet = False

    def _pause(self) -> float:
        """Return the seconds until the next look, if nothing wakes the producer before."""
        now = time.monotonic()
        # Cancel requests and a fetch without an answer must not wait for the poll interval, which may be a minute.
        pause = min(self._poll_at - now, self._canceller.seconds_until_check())
        if self._doubts:
            pause = min(pause, self._doubt_after - now)
        pause = max(0.0, pause)
        if any(lane.has_waiting for lane in self._lanes):
            pause = min(pause, PATIENCE_SECONDS)
        if self._drain:
            if not self._claims.held:
                pause = min(pause, DRAIN_LOOK_SECONDS)
        else:
            for watch in self._watches.values():
                if watch.full_since is not None:
                    pause = min(pause, FULL_SECONDS) if watch.is_marked else pause
                elif watch.is_fast:
                    pause = min(pause, LOOK_SECONDS)
        return pause

    def _is_finished(self, hungry: Sequence[str]) -> bool:
        if self._claims.held:
            return False
        if self._remaining == 0:
            return True
        return self._drain is not None and self._is_drained(self._drain)

    def _is_drained(self, maintainer: Maintainer) -> bool:
        """Return, while nothing is held, whether the store has nothing more to fetch."""
        if maintainer.stage().count:
            return False
        self._fetch_round()
        # Fetching nothing does not prove that nothing is left: an outcome is stored before its job's slot is free, so a lane may
        # have had no room and not have been asked for; a stopping worker asks for nothing; a dead one is given nothing; and
        # rows that another transaction has locked are passed over. So ask the store, last of all.
        return not self._claims.held and not self._fetcher.ready(self._watches)

    def _hand_back_stranded(self) -> None:
        for lane in self._lanes:
            if lane.has_waiting:
                self._hand_back(lane.take_back(older_than=PATIENCE_SECONDS))

    def _hand_back(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._acker.put(handed_back(execution.job), execution.claim_slot)
