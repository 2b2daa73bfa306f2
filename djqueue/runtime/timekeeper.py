"""Hold running tasks to their timeouts.

Three steps. At the deadline the task is asked: ``context.cancelled`` is set, what it awaits is cancelled, and so are its
SQL statements (``django_connections.Statements``). A thread that still runs after the grace
cannot be stopped: its run is stuck, and the worker retires, so that another process takes its place. Where even this
thread gets no turn, because a task holds the interpreter, the supervisor kills the process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

from djqueue.runtime.runs import Run
from djqueue.service import Service

GRACE_SECONDS = 2.0
_IDLE_SECONDS = 3600.0


class Timekeeper(Service):
    """Keeps no run itself: what it looks at is what runs, so that what has ended takes no memory until its deadline."""

    name = "timekeeper"

    def __init__(self, running: Mapping[int, Run], *, on_stuck: Callable[[Run], None]) -> None:
        super().__init__()
        self._running = running
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._next_look = math.inf
        """No run that is watched is due before, by the monotonic clock."""

    def watch(self, run: Run) -> None:
        """Look after this run, which is among those that run already, from its deadline on; from any thread."""
        assert run.deadline is not None
        if run.deadline < self._next_look:  # seldom: after that no run is due before this one, while it runs and after
            self._look_by(run.deadline)
            self.wake()

    def run_once(self) -> float:
        """Deal with every run whose time has come; return the seconds until the next look."""
        now = time.monotonic()
        if self._next_look <= now:
            # First: a run that starts from here on lowers it again, and the others are among those that run.
            self._next_look = math.inf
            for run in list(self._running.values()):
                if run.deadline is not None and not run.is_stuck:
                    due = run.asked_at + GRACE_SECONDS if run.is_overdue else run.deadline
                    self._look_by(due if due > now else self._act(run, now))
        return max(0.0, min(_IDLE_SECONDS, self._next_look - time.monotonic()))

    def _look_by(self, moment: float) -> None:
        with self._lock:
            self._next_look = min(self._next_look, moment)

    def _act(self, run: Run, now: float) -> float:
        """Ask a run to stop, or give it up; return when to look at it again."""
        if self._running.get(run.execution.place) is not run:
            return math.inf
        if run.is_overdue:
            run.is_stuck = True
            self._on_stuck(run)
            return math.inf
        run.is_overdue, run.asked_at = True, now
        run.stop(f"The task ran longer than its timeout of {run.execution.task.timeout}.")
        return now + GRACE_SECONDS
