"""Decide which job runs next, and run it by the executor.

A lane is a set of queues that share slots. Jobs start in the order in which they were fetched; a sync job gets a
thread, an async job the event loop, and either holds one slot. What is fetched beyond the free slots waits here.

How much may wait: about 50 ms of work, by a running estimate of how long a job of this lane takes. A worker that has
seen nothing yet prefetches nothing, and one slow job raises the estimate at once, so no job waits behind another's
hours while other workers idle; what has waited for 250 ms all the same is handed back. The estimate knows only jobs that
have ended. A slot whose job already runs for longer than it says, and than 50 ms, is not counted: where this holds for all
slots, nothing is fetched.

How many threads are awake: no more than are of use. A thread that is done takes the next job itself, and a thread that
takes a job while others wait calls one more thread. If the jobs wait for something, a database, a server, the interpreter
is free, the called thread runs at once and calls the next: a hundred slots fill within milliseconds. If they compute, it
gets the interpreter only by force, when a switch interval has passed: one more could only make them take turns. So it
stands by, and checks every millisecond whether jobs still begin.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any

from djqueue import hooks, telemetry
from djqueue.reminders import Reminder
from djqueue.runtime.execution import Execution
from djqueue.runtime.executor import Executor

PREFETCH_SECONDS = 0.05
PREFETCH_LIMIT = 1000
PATIENCE_SECONDS = 0.25
STANDBY_SECONDS = 0.001
"""When no job has begun for so long, although some wait, the running threads are blocked, and one more is of use."""
_BURST = 100
"""Number of async jobs that are started in a row before other tasks of the event loop get a turn."""


# A task that starts at once, and not when the loop comes round, saves each job a fifth of its time on the loop.
if sys.version_info >= (3, 12):
    _task: Callable[..., asyncio.Task[Any]] = partial(asyncio.Task, eager_start=True)
else:
    _task = asyncio.Task

_Due = tuple[list[Execution], Callable[[], None] | None]
"""Async jobs to start, and the call that brings one more thread, outside of the lock."""


class Lane:
    def __init__(self, queues: Sequence[str], slots: int, executor: Executor, *, may_prefetch: bool = True) -> None:
        """Without ``may_prefetch`` only free slots are filled: what is fetched at most once must not wait here."""
        self.queues = list(queues)
        self.slots = slots
        self._executor = executor
        self._may_prefetch = may_prefetch
        self.running = 0
        self.estimate = 0.0
        """Smoothed seconds per job; 0 before the first one has ended."""
        self.on_room: Callable[[], None] | None = None
        """Called once when there is room again; the producer sets it when it has to wait for room."""
        self._began: dict[Execution, float] = {}
        """When each running job began, the oldest first. (A claim slot may belong to another job before the slot here is free.)"""
        self._pending: deque[Execution] = deque()
        self._lock = threading.Lock()
        self._reminder = Reminder()
        self._idle_threads = 0
        self._calls: SimpleQueue[bool] = SimpleQueue()
        """What idle threads wait for: True means take a job, False means end."""
        self._called_at: float | None = None
        """Time at which a thread was called but has not yet taken a job, or None."""
        self._last_start = 0.0
        """When a thread last took a job."""
        self._due: deque[Execution] = deque()
        """Async jobs that have a slot and are about to start. Like what follows, it belongs to the event loop's thread."""
        self._is_starting = False

    # The producer's side.

    def room(self) -> int:
        """How many more jobs this lane would take."""
        return self.slots - self.running - len(self._pending) + self._prefetch()

    def add(self, executions: Sequence[Execution]) -> None:
        """Start what there are slots for and keep the rest, in this order."""
        with self._lock:
            self._pending.extend(executions)
            due = self._next()
        self._start(due)

    def take_back(self, *, older_than: float = 0.0) -> list[Execution]:
        """Remove and return what has waited for that many seconds; all that waits by default."""
        if not self._pending:
            return []
        limit = time.monotonic() - older_than
        with self._lock:
            taken = [execution for execution in self._pending if execution.claimed_at <= limit]
            if taken:
                self._pending = deque(execution for execution in self._pending if execution.claimed_at > limit)
                # They waited far longer than the estimate said.
                self.estimate = max(self.estimate, older_than)
        return taken

    def occupants(self) -> list[Execution]:
        """Return what holds a slot, the oldest first; from any thread."""
        with self._lock:
            return list(self._began)

    @property
    def has_waiting(self) -> bool:
        return bool(self._pending)

    def dismiss_threads(self) -> None:
        """Let every idle thread end, and every busy one after its job."""
        for _ in range(self.slots):
            self._calls.put(False)

    # Threads: each runs one sync job after another.

    def start_thread(self) -> None:
        threading.Thread(target=self._serve, name="djqueue-job", daemon=True).start()

    def _serve(self) -> None:
        executor = self._executor
        try:
            execution = self.first_for_thread()
            while execution is not None:
                execution = self.next_for_thread(execution, executor.run(execution))
        except BaseException as error:
            # Without this, the interpreter would write a traceback to standard error, beside the log.
            hooks.report(error, "Unexpected error in a job thread; the thread ends.")
        finally:
            executor.close_connections()

    def first_for_thread(self) -> Execution | None:
        """Return the first job of a new thread; see ``next_for_thread``."""
        return self._answer() or self._wait()

    def next_for_thread(self, ended: Execution, seconds: float) -> Execution | None:
        """Free the slot of a sync job and wait for the next one; None means that the thread is not needed any more.

        A busy lane hands the next job over without waking another thread: that is what makes short jobs cheap.
        """
        execution: Execution | None = None
        with self._lock:
            self._finish(ended, seconds)
            if self._has_work_for_a_thread():
                execution = self._take()
            else:
                self._idle_threads += 1
            due = self._next()
        self._start(due)
        return execution or self._wait()

    def _wait(self) -> Execution | None:
        """Wait, as an idle thread, until there is a job; None means that the thread is not needed any more."""
        while True:
            self._executor.release_connections()
            if not self._calls.get():
                return None
            if (execution := self._answer()) is not None:
                return execution

    def _answer(self) -> Execution | None:
        """Take a job, after a call, if that is of use, and stand by until it is; None if the other threads took all jobs."""
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
                # This thread did not have to wait for the interpreter, or no other thread makes progress.
                if now - asked < patience or now - self._last_start >= STANDBY_SECONDS:
                    self._called_at = None
                    execution = self._take()
                    due = self._next()
                    break
            asked = now + STANDBY_SECONDS
            time.sleep(STANDBY_SECONDS)
        self._start(due)
        return execution

    # The event loop: each async job is a task of its own.

    def _start_async(self, executions: Iterable[Execution]) -> None:
        """Start jobs, and those that may start because one of them is over already; on the event loop."""
        self._due.extend(executions)
        if self._is_starting:
            return  # called by one of them, which ended before it had to wait for anything: the loop below continues
        self._is_starting = True
        try:
            for _ in range(_BURST):
                if not self._due:
                    return
                # A context of its own: it is most often started from within the task of another job.
                serve = self._serve_async(self._due.popleft())
                _task(serve, loop=asyncio.get_running_loop(), context=Context())
        finally:
            self._is_starting = False
            if self._due:  # many that never wait: other tasks of the loop need a turn
                asyncio.get_running_loop().call_soon(self._start_async, ())

    async def _serve_async(self, execution: Execution) -> None:
        seconds = 0.0
        try:
            seconds = await self._executor.run_async(execution)
        finally:
            self._start_async(self.finish_async(execution, seconds))

    def finish_async(self, ended: Execution, seconds: float) -> list[Execution]:
        """Free the slot of an async job; return the async jobs that may start now."""
        with self._lock:
            self._finish(ended, seconds)
            started, call = self._next()
        self._start(([], call))
        return started

    # Both, with the lock held.

    def _has_work_for_a_thread(self) -> bool:
        return bool(self._pending) and self.running < self.slots and not self._pending[0].is_async

    def _take(self) -> Execution:
        execution = self._pending.popleft()
        self.running += 1
        self._last_start = self._began[execution] = time.monotonic()
        return execution

    def _next(self) -> _Due:
        """Return what has to be started outside of the lock: async jobs at the head, and a thread for a sync job behind them."""
        started: list[Execution] = []
        while self._pending and self._pending[0].is_async and self.running < self.slots:
            execution = self._pending.popleft()
            self.running += 1
            self._began[execution] = time.monotonic()
            started.append(execution)
        call: Callable[[], None] | None = None
        if self._called_at is None and self._has_work_for_a_thread():
            self._called_at = time.monotonic()
            if self._idle_threads:
                self._idle_threads -= 1
                call = self._call_idle
            else:
                call = self._call_new
        return started, call

    def _finish(self, ended: Execution, seconds: float) -> None:
        self.running -= 1
        self._began.pop(ended, None)
        estimate = self.estimate
        # Up at once, down slowly: a mistake in one direction costs a fetch, in the other a stranded job.
        self.estimate = estimate + (seconds - estimate) * (0.5 if seconds > estimate else 0.1) if estimate else seconds
        if self.on_room is not None and len(self._pending) * 2 <= self._prefetch():
            on_room, self.on_room = self.on_room, None
            on_room()

    # Both, without the lock.

    def _start(self, due: _Due) -> None:
        started, call = due
        if started:
            self._executor.event_loop.call(self._start_async, started)
        if call is not None:
            call()

    def _call_idle(self) -> None:
        self._calls.put(True)

    def _call_new(self) -> None:
        try:
            self.start_thread()
        except RuntimeError as error:
            # The threads that exist go on, and what waits too long is handed back.
            if self._reminder.is_due(str(error)):
                telemetry.emit("djqueue.lane.no_thread", logging.WARNING, queues=self.queues, error=str(error))
            self._called_at = None

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
