"""Slots, and who gets them.

A lane is a set of queues that share slots. Jobs start in the order in which they were fetched; a sync job gets a
thread, an async job the event loop, and either holds one slot. What is fetched beyond the free slots waits here.

How much may wait: about 50 ms of work, by a running estimate of how long a job of this lane takes. A worker that has
seen nothing yet prefetches nothing, and one slow job raises the estimate at once, so no job waits behind another's
hours while other workers idle; what has waited for 250 ms all the same is handed back. The estimate knows only jobs that
have ended. A slot whose job already runs for longer than it says, and than 50 ms, is not counted on: where all slots do,
nothing is fetched.

How many threads are awake: no more than are of use. A thread that is done takes the next job itself, and whoever takes a
job while others wait calls one more thread. If the jobs wait for something, a database, a server, the interpreter is
free, the called one comes at once and calls the next: a hundred slots fill within milliseconds. If they compute, it gets
the interpreter only by force, when a switch interval has passed: one more could only make them take turns. So it stands
by, and looks every millisecond whether jobs still begin.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from djqueue import telemetry
from djqueue.jobs.records import ClaimedJob
from djqueue.reminders import Reminder
from djqueue.tasks.task import Task

PREFETCH_SECONDS = 0.05
PREFETCH_LIMIT = 1000
PATIENCE_SECONDS = 0.25
STANDBY_SECONDS = 0.001
"""When no job has begun for so long, although some wait, whoever runs is blocked, and one more thread is of use."""


class Execution(NamedTuple):
    """One claimed job on its way through a worker."""

    job: ClaimedJob
    task: Task
    is_async: bool
    place: int
    """Where the claim stands in the claim block."""
    claimed: float
    """``time.monotonic()`` of the fetch."""


_Call = Callable[[], None]


class Lane:
    def __init__(
        self,
        queues: Sequence[str],
        slots: int,
        *,
        start_thread: Callable[[Lane], None],
        start_async: Callable[[Lane, list[Execution]], None],
        may_prefetch: bool = True,
    ) -> None:
        """``start_thread`` starts one that begins with ``first_for_thread``.

        Without ``may_prefetch`` only free slots are filled: what is fetched at most once must not wait here.
        """
        self.queues = list(queues)
        self.slots = slots
        self._may_prefetch = may_prefetch
        self.running = 0
        self.estimate = 0.0
        """Smoothed seconds per job; 0: nothing is known."""
        self.on_room: Callable[[], None] | None = None
        """Called once when there is room again; the producer sets it when it has to wait for room."""
        self._began: dict[int, float] = {}
        """When each job that runs began, by its place in the claim block; the oldest first."""
        self._pending: deque[Execution] = deque()
        self._lock = threading.Lock()
        self._start_thread = start_thread
        self._start_async = start_async
        self._reminder = Reminder()
        self._idle_threads = 0
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """What idle threads wait for: True, come and take a job; False, end."""
        self._called_at: float | None = None
        """When a thread was called that has not taken a job yet; None: nobody is on his way."""
        self._last_start = 0.0
        """When a thread last took a job."""

    # The producer's side.

    def room(self) -> int:
        """How many more jobs this lane would take."""
        return self.slots - self.running - len(self._pending) + self._prefetch()

    def add(self, executions: Sequence[Execution]) -> None:
        """Start what there are slots for and keep the rest, in this order."""
        with self._lock:
            self._pending.extend(executions)
            due = self._next()
        self._begin(due)

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

    def first_for_thread(self, on_idle: Callable[[], None]) -> Execution | None:
        """Return the first job of a thread that was started for it; see ``next_for_thread``."""
        return self._answer() or self._wait(on_idle)

    def next_for_thread(self, place: int, seconds: float, on_idle: Callable[[], None]) -> Execution | None:
        """Give the slot of a sync job back and wait for the next one; None: the thread is not needed any more.

        A busy lane hands the next job over without waking another thread: that is what makes short jobs cheap.
        """
        execution: Execution | None = None
        with self._lock:
            self._finish(place, seconds)
            if self._has_work_for_a_thread():
                execution = self._take()
            else:
                self._idle_threads += 1
            due = self._next()
        self._begin(due)
        return execution or self._wait(on_idle)

    def finish_async(self, place: int, seconds: float) -> list[Execution]:
        """Give the slot of an async job back; return the async jobs that may start now."""
        with self._lock:
            self._finish(place, seconds)
            started, call = self._next()
        self._begin(([], call))
        return started

    def dismiss_threads(self) -> None:
        """Let every idle thread end, and every busy one after its job."""
        for _ in range(self.slots):
            self._calls.put(False)

    # Threads, one at a time.

    def _wait(self, on_idle: Callable[[], None]) -> Execution | None:
        """Wait, as an idle thread, until there is a job; None: the thread is not needed any more."""
        while True:
            on_idle()
            if not self._calls.get():
                return None
            if (execution := self._answer()) is not None:
                return execution

    def _answer(self) -> Execution | None:
        """Come when called: take a job if that is of use, and stand by until it is; None: the others took them all."""
        patience = sys.getswitchinterval() / 2
        asked = self._called_at or 0.0
        while True:
            with self._lock:
                if not self._has_work_for_a_thread():
                    self._called_at = None
                    self._idle_threads += 1
                    due, execution = self._next(), None
                    break
                now = time.monotonic()
                # Here without being kept waiting for the interpreter, or nobody else gets on.
                if now - asked < patience or now - self._last_start >= STANDBY_SECONDS:
                    self._called_at = None
                    execution = self._take()
                    due = self._next()
                    break
            asked = now + STANDBY_SECONDS
            time.sleep(STANDBY_SECONDS)
        self._begin(due)
        return execution

    def _has_work_for_a_thread(self) -> bool:
        return bool(self._pending) and self.running < self.slots and not self._pending[0].is_async

    def _take(self) -> Execution:
        execution = self._pending.popleft()
        self.running += 1
        self._last_start = self._began[execution.place] = time.monotonic()
        return execution

    def _next(self) -> tuple[list[Execution], _Call | None]:
        """Return what has to be begun outside of the lock: async jobs at the head, and a thread for a sync one behind them."""
        started: list[Execution] = []
        while self._pending and self._pending[0].is_async and self.running < self.slots:
            execution = self._pending.popleft()
            self.running += 1
            self._began[execution.place] = time.monotonic()
            started.append(execution)
        call: _Call | None = None
        if self._called_at is None and self._has_work_for_a_thread():
            self._called_at = time.monotonic()
            if self._idle_threads:
                self._idle_threads -= 1
                call = self._call_idle
            else:
                call = self._call_new
        return started, call

    def _begin(self, due: tuple[list[Execution], _Call | None]) -> None:
        started, call = due
        if started:
            self._start_async(self, started)
        if call is not None:
            call()

    def _call_idle(self) -> None:
        self._calls.put(True)

    def _call_new(self) -> None:
        try:
            self._start_thread(self)
        except RuntimeError as error:
            # No more threads to be had. Those that there are go on, and what waits too long is handed back.
            if self._reminder.is_due(str(error)):
                telemetry.emit("djqueue.lane.no_thread", logging.WARNING, queues=self.queues, error=str(error))
            self._called_at = None

    def _finish(self, place: int, seconds: float) -> None:
        self.running -= 1
        self._began.pop(place, None)
        estimate = self.estimate
        # Up at once, down slowly: a mistake in one direction costs a fetch, in the other a stranded job.
        self.estimate = estimate + (seconds - estimate) * (0.5 if seconds > estimate else 0.1) if estimate else seconds
        if self.on_room is not None and len(self._pending) * 2 <= self._prefetch():
            on_room, self.on_room = self.on_room, None
            on_room()

    def _prefetch(self) -> int:
        if not self.estimate or not self._may_prefetch:
            return 0
        return min(PREFETCH_LIMIT, int((self.slots - self._stuck()) * PREFETCH_SECONDS / self.estimate))

    def _stuck(self) -> int:
        """Return how many slots have a job that already runs for longer than one should."""
        limit = time.monotonic() - max(PREFETCH_SECONDS, 2 * self.estimate)
        count = 0
        # The producer asks without the lock. When one begins or ends meanwhile, those before it have been counted, or are soon.
        with suppress(RuntimeError):
            for began in self._began.values():
                if began > limit:
                    break
                count += 1
        return count
