"""Slots, and who gets them.

A lane is a set of queues that share slots. Jobs start in the order in which they were fetched; a sync job gets a
thread, an async job the event loop, and either holds one slot. What is fetched beyond the free slots waits here.

How much may wait: about 50 ms of work, by a running estimate of how long a job of this lane takes. A worker that has
seen nothing yet prefetches nothing, and one slow job raises the estimate at once, so no job waits behind another's
hours while other workers idle; what has waited for 250 ms all the same is handed back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from djqueue.records import ClaimedJob
from djqueue.tasks import Task

PREFETCH_SECONDS = 0.05
PREFETCH_LIMIT = 1000
PATIENCE_SECONDS = 0.25


class Execution(NamedTuple):
    """One claimed job on its way through a worker."""

    job: ClaimedJob
    task: Task
    is_async: bool
    place: int
    """Where the claim stands in the claim block."""
    claimed: float
    """``time.monotonic()`` of the fetch."""


class Lane:
    def __init__(
        self,
        queues: Sequence[str],
        slots: int,
        *,
        start_thread: Callable[[Lane, Execution], None],
        start_async: Callable[[Lane, list[Execution]], None],
        may_prefetch: bool = True,
    ) -> None:
        """Without ``may_prefetch`` only free slots are filled: what is fetched at most once must not wait here."""
        self.queues = list(queues)
        self.slots = slots
        self._may_prefetch = may_prefetch
        self.running = 0
        self.estimate = 0.0
        """Smoothed seconds per job; 0: nothing is known."""
        self.on_room: Callable[[], None] | None = None
        """Called once when there is room again; the producer sets it when it has to wait for room."""
        self._pending: deque[Execution] = deque()
        self._lock = threading.Lock()
        self._start_thread = start_thread
        self._start_async = start_async
        self._idle_threads = 0
        self._handover: SimpleQueue[Execution | None] = SimpleQueue()

    # The producer's side.

    def room(self) -> int:
        """How many more jobs this lane would take."""
        return self.slots - self.running - len(self._pending) + self._prefetch()

    def add(self, executions: Sequence[Execution]) -> None:
        """Start what there are slots for and keep the rest, in this order."""
        with self._lock:
            self._pending.extend(executions)
            started = self._dispatch()
        if started:
            self._start_async(self, started)

    def take_back(self, *, older_than: float = 0.0) -> list[Execution]:
        """Remove and return what has waited for that many seconds; all that waits by default."""
        if not self._pending:
            return []
        limit = time.monotonic() - older_than
        with self._lock:
            taken = [execution for execution in self._pending if execution.claimed <= limit]
            if taken:
                self._pending = deque(execution for execution in self._pending if execution.claimed > limit)
                # They waited far longer than the estimate said.
                self.estimate = max(self.estimate, older_than)
        return taken

    @property
    def has_waiting(self) -> bool:
        return bool(self._pending)

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self.running

    # The executor's side.

    def next_for_thread(self, seconds: float, on_idle: Callable[[], None]) -> Execution | None:
        """Give the slot of a sync job back and wait for the next one; None: the thread is not needed any more.

        A busy lane hands the next job over without waking another thread: that is what makes short jobs cheap.
        """
        execution: Execution | None = None
        with self._lock:
            self._finish(seconds)
            pending = self._pending
            if pending and not pending[0].is_async and self.running < self.slots:
                self.running += 1
                execution = pending.popleft()
                started: list[Execution] = []
            else:
                started = self._dispatch()
                self._idle_threads += 1
        if started:
            self._start_async(self, started)
        if execution is not None:
            return execution
        on_idle()
        return self._handover.get()

    def finish_async(self, seconds: float) -> list[Execution]:
        """Give the slot of an async job back; return the async jobs that may start now."""
        with self._lock:
            self._finish(seconds)
            return self._dispatch()

    def dismiss_threads(self) -> None:
        """Let every idle thread end, and every busy one after its job."""
        for _ in range(self.slots):
            self._handover.put(None)

    def _finish(self, seconds: float) -> None:
        self.running -= 1
        estimate = self.estimate
        # Up at once, down slowly: a mistake in one direction costs a fetch, in the other a stranded job.
        self.estimate = estimate + (seconds - estimate) * (0.5 if seconds > estimate else 0.1)
        if self.on_room is not None and len(self._pending) * 2 <= self._prefetch():
            on_room, self.on_room = self.on_room, None
            on_room()

    def _prefetch(self) -> int:
        if not self.estimate or not self._may_prefetch:
            return 0
        return min(PREFETCH_LIMIT, int(self.slots * PREFETCH_SECONDS / self.estimate))

    def _dispatch(self) -> list[Execution]:
        """Start sync jobs on threads; return async ones for the caller to start outside the lock."""
        started = []
        while self._pending and self.running < self.slots:
            execution = self._pending.popleft()
            self.running += 1
            if execution.is_async:
                started.append(execution)
            elif self._idle_threads:
                self._idle_threads -= 1
                self._handover.put(execution)
            else:
                self._start_thread(self, execution)
        return started
