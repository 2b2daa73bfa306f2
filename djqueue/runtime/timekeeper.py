"""Hold running tasks to their timeouts.

Three steps. At the deadline the task is asked: ``context.cancelled`` is set, what it awaits is cancelled, and its SQL
statements have ended by themselves (``django_connections.limit_statements``). A thread that still runs after the grace
cannot be stopped: its run is stuck, and the worker retires, so that another process takes its place. Where even this
thread gets no turn, because a task holds the interpreter, the supervisor kills the process.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from djqueue.runtime.runs import Run
from djqueue.service import Service

GRACE_SECONDS = 2.0
_IDLE_SECONDS = 3600.0


class Timekeeper(Service):
    name = "timekeeper"

    def __init__(self, *, is_running: Callable[[Run], bool], on_stuck: Callable[[Run], None]) -> None:
        super().__init__()
        self._is_running = is_running
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._counter = itertools.count()
        self._watched: list[tuple[float, int, Run]] = []

    def watch(self, run: Run) -> None:
        """Look after this run from its deadline on; from any thread."""
        assert run.deadline is not None
        with self._lock:
            heapq.heappush(self._watched, (run.deadline, next(self._counter), run))
            is_first = self._watched[0][2] is run
        if is_first:
            self.wake()

    def run_once(self) -> float:
        """Deal with every run whose time has come; return the seconds until the next one."""
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._watched:
                    return _IDLE_SECONDS
                due, _, run = self._watched[0]
                if due > now:
                    return due - now
                heapq.heappop(self._watched)
            if not self._is_running(run):
                continue
            if not run.is_overdue:
                run.is_overdue = True
                run.stop(f"The task ran longer than its timeout of {run.execution.task.timeout}.")
                with self._lock:
                    heapq.heappush(self._watched, (now + GRACE_SECONDS, next(self._counter), run))
            else:
                run.is_stuck = True
                self._on_stuck(run)
