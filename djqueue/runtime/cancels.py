"""Pass cancel requests on to the jobs that run here.

A request stands in the job's row; a wake-up ``cancel:<id>`` tells of it at once, and where none arrives a look at what
runs here finds it every two seconds.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Mapping

from djqueue import telemetry
from djqueue.engines.protocol import Fetcher
from djqueue.runtime.runs import Run

LOOK_SECONDS = 2.0
PREFIX = "cancel:"


class Canceller:
    def __init__(self, engine: Fetcher, running: Mapping[int, Run]) -> None:
        self._engine = engine
        self._running = running
        self._looked = time.monotonic()

    def look_in(self) -> float:
        """Return the seconds until the next look; infinite while nothing runs that could be cancelled."""
        return self._looked + LOOK_SECONDS - time.monotonic() if self._running else math.inf

    def heed(self, payloads: Collection[str] = ()) -> None:
        """Ask the jobs to stop that somebody wants cancelled; look for them when told to, or every two seconds."""
        now = time.monotonic()
        is_due = now - self._looked >= LOOK_SECONDS
        if not self._running or not (is_due or any(payload.startswith(PREFIX) for payload in payloads)):
            return
        self._looked = now
        runs = {run.execution.job.id: run for run in list(self._running.values()) if run.cancel_reason is None}
        for request in self._engine.cancel_requested(runs.keys()) if runs else ():
            run = runs[request.id]
            if run.execution.job.claim == request.claim:
                job = run.execution.job
                telemetry.emit("djqueue.job.cancelling", logging.INFO, job=job.id, task=job.task, by=request.by)
                run.cancel_reason = request.reason or "Cancelled."
                run.stop(run.cancel_reason)
