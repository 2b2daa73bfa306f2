"""Pass cancel requests on to the jobs that run here.

A request is stored in the job's row. A wake-up ``cancel:<id>`` announces it at once; without one, a check of the running
jobs finds it within two seconds.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping

from djqueue import telemetry
from djqueue.engines.protocol import Fetcher
from djqueue.runtime.execution import Execution

CHECK_SECONDS = 2.0
PREFIX = "cancel:"


class Canceller:
    def __init__(self, engine: Fetcher, running: Mapping[int, Execution]) -> None:
        self._engine = engine
        self._running = running
        self._checked_at = time.monotonic()

    def seconds_until_check(self) -> float:
        """Return the seconds until the next check; infinite while nothing runs that could be cancelled."""
        return self._checked_at + CHECK_SECONDS - time.monotonic() if self._running else math.inf

    def check(self, payloads: Collection[str] = ()) -> None:
        """Ask the jobs to stop that have a cancel request; after a wake-up in ``payloads``, or every two seconds."""
        now = time.monotonic()
        is_due = now - self._checked_at >= CHECK_SECONDS
        if not self._running or not (is_due or any(payload.startswith(PREFIX) for payload in payloads)):
            return
        self._checked_at = now
        running = {one.job.id: one for one in list(self._running.values()) if one.cancel_reason is None}
        for request in self._engine.cancel_requested(running.keys()) if running else ():
            execution = running[request.id]
            if (job := execution.job).claim == request.claim:
                telemetry.emit("djqueue.job.cancelling", logging.INFO, job=job.id, task=job.task, by=request.by)
                execution.cancel_reason = request.reason or "Cancelled."
                execution.stop(execution.cancel_reason)
