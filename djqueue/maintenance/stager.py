"""Make scheduled and retryable jobs available when they are due.

The stager sleeps until the next job is due, and never longer than ``LOOK_SECONDS``. So only a job that is due before
then could be late: the process that stores one checks, after the commit, whether the stager sleeps, and wakes it by
the protocol that wakes workers. The name that is marked is ``STAGE``, which no queue can have. A job that is due later
wakes no process and costs its enqueuer nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from djqueue.engines.protocol import STAGE, STAGE_LOOK_SECONDS, Listener, Maintainer
from djqueue.service import Service

LOOK_SECONDS = STAGE_LOOK_SECONDS
BATCH_LIMIT = 5000
SETTLE_LIMIT = 1000
NAP_SECONDS = 0.01
"""Jobs that are due this soon are waited for without a mark, so that many short delays cause no notifications."""
BREATH_SECONDS = 0.002
"""Minimum wait before a look, so that it stages several jobs where many are due."""


class Stager(Service):
    name = "stager"

    def __init__(self, engine: Maintainer, listener: Listener, *, is_leader: Callable[[], bool]) -> None:
        super().__init__()
        self._engine = engine
        self._listener = listener
        self._is_leader = is_leader
        self._settle_at = 0.0
        """Monotonic time of the next look for what the ends of jobs in workflows have left behind."""

    def wake(self) -> None:
        self._listener.interrupt()

    def run_once(self) -> float:
        """Stage one batch; then sleep until the next job is due, a wake-up announces an earlier one, or the next look."""
        if not self._is_leader():
            self._listener.unmark()
            self._listener.wait(LOOK_SECONDS)
            return 0
        staged = self._engine.stage(BATCH_LIMIT)
        self.last_run = time.monotonic()
        if self.last_run >= self._settle_at:
            is_full = self._engine.settle(SETTLE_LIMIT).is_full
            self._settle_at = 0.0 if is_full else self.last_run + LOOK_SECONDS
        pause = LOOK_SECONDS if staged.next_in is None else min(LOOK_SECONDS, staged.next_in)
        if pause <= 0:
            # More are due than one batch takes, or one became due this moment. What is left may also be locked by another
            # transaction: pause, to avoid a busy loop.
            if not staged.count:
                self._sleep(NAP_SECONDS)
        elif pause <= NAP_SECONDS:
            self._listener.unmark()
            self._sleep(max(pause, BREATH_SECONDS))
        elif self._listener.mark([STAGE]):
            self._sleep(pause)
        # Otherwise the mark is new: look once more, and every process that stores a job after that look sees the mark.
        return 0

    def on_stop(self) -> None:
        self._listener.close()
        self._engine.close()

    def _sleep(self, seconds: float) -> None:
        """Sleep until a wake-up for the stager: those for workers arrive here too, and would cost a look at each job."""
        until = time.monotonic() + seconds
        while True:
            woken = self._listener.wait(max(0.0, until - time.monotonic()))
            if STAGE in woken or not woken:
                return
