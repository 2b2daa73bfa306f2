"""Enforce the timeouts of running tasks.

Three steps. At the deadline the task is asked to stop: ``context.cancelled`` is set, what it awaits is cancelled, and so
are its SQL statements (``statements.py``). A thread that still runs after the grace period cannot be stopped: its
execution is stuck, and the worker retires, so that another process takes its place. If a task holds the interpreter, even
this thread does not run, and the supervisor kills the process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping

from djqueue.runtime.execution import Execution
from djqueue.service import Service

GRACE_SECONDS = 2.0
_IDLE_SECONDS = 3600.0


class Timekeeper(Service):
    """Keeps no execution itself: it looks at what runs, so that an execution that has ended is freed before its deadline."""

    name = "timekeeper"

    def __init__(self, running: Mapping[int, Execution], *, on_stuck: Callable[[Execution], None]) -> None:
        super().__init__()
        self._running = running
        self._on_stuck = on_stuck
        self._lock = threading.Lock()
        self._next_look = math.inf
        """No watched execution is due before this time, by the monotonic clock."""

    def watch(self, execution: Execution) -> None:
        """Watch this execution, which is in ``running`` already, from its deadline on; from any thread."""
        assert execution.deadline is not None
        if execution.deadline < self._next_look:  # seldom true: until the next look, later deadlines change nothing
            self._look_by(execution.deadline)
            self.wake()

    def run_once(self) -> float:
        """Act on every execution whose deadline has passed; return the seconds until the next look."""
        now = time.monotonic()
        if self._next_look <= now:
            # First: an execution that starts after this line lowers it again, and the others are in ``running``.
            self._next_look = math.inf
            for execution in list(self._running.values()):
                if execution.deadline is not None and not execution.is_stuck:
                    due = execution.asked_at + GRACE_SECONDS if execution.is_overdue else execution.deadline
                    self._look_by(due if due > now else self._act(execution, now))
        return max(0.0, min(_IDLE_SECONDS, self._next_look - time.monotonic()))

    def _look_by(self, moment: float) -> None:
        with self._lock:
            self._next_look = min(self._next_look, moment)

    def _act(self, execution: Execution, now: float) -> float:
        """Ask a task to stop, or report it as stuck; return when to look at it again."""
        if self._running.get(execution.claim_slot) is not execution:
            return math.inf
        if execution.is_overdue:
            execution.is_stuck = True
            self._on_stuck(execution)
            return math.inf
        execution.is_overdue, execution.asked_at = True, now
        execution.stop(f"The task ran longer than its timeout of {execution.task.timeout}.")
        return now + GRACE_SECONDS
