"""Delete finished jobs past their retention, and unique keys that no job holds any more.

Runs on the leader only, in passes along the history, oldest first, and a pass in small steps: none holds its locks for
more than a moment, and between two the pruner rests for a multiple of what the step took, so that it uses a small part
of the database's time. During a long pass, because more jobs end than are deleted, the rests become shorter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from djqueue import telemetry
from djqueue.engines.protocol import Maintainer
from djqueue.jobs.records import PruneRule
from djqueue.service import Service

PASS_SECONDS = 30.0
"""Minimum rest between two passes."""
SHARE = 1 / 20
"""Maximum share of time for passes that find nothing to delete."""
STEP_SECONDS = 0.02
"""Duration of a step; the number of jobs it reads is adapted to that."""
REST_FACTOR = 9.0
SMALLEST_STEP, LARGEST_STEP = 50, 5000
LOOK_SECONDS = 1.0


class Pruner(Service):
    name = "pruner"

    def __init__(self, engine: Maintainer, rules: Sequence[PruneRule], *, is_leader: Callable[[], bool]) -> None:
        super().__init__()
        self._engine = engine
        self._rules = rules
        self._is_leader = is_leader
        self._limit = 500
        self._position: Any = None
        self._began = 0.0
        self._worked = 0.0
        self._deleted = 0

    def run_once(self) -> float:
        """Take one step of a pass; return how long to rest after it."""
        if not self._is_leader():
            self._position = None
            return LOOK_SECONDS
        began = time.monotonic()
        if self._position is None:
            self._began, self._worked, self._deleted = began, 0.0, 0
        pruned = self._engine.prune(self._rules, place=self._position, limit=self._limit)
        self.last_run = time.monotonic()
        took = self.last_run - began
        self._position = pruned.place
        self._worked += took
        self._deleted += pruned.count
        if pruned.place is None:
            return self._end_pass()
        self._adapt(took)
        return took * max(1.0, REST_FACTOR - (time.monotonic() - self._began) / 60)

    def on_stop(self) -> None:
        self._engine.close()

    def _adapt(self, took: float) -> None:
        if took > STEP_SECONDS:
            self._limit = max(SMALLEST_STEP, self._limit // 2)
        elif took < STEP_SECONDS / 3:
            self._limit = min(LARGEST_STEP, self._limit * 2)

    def _end_pass(self) -> float:
        # After the jobs, because some keys are held by jobs that are kept.
        self._engine.prune_keys(LARGEST_STEP)
        self.last_run = time.monotonic()
        if self._deleted:
            telemetry.emit("djqueue.job.pruned", logging.INFO, count=self._deleted, seconds=self.last_run - self._began)
        return max(PASS_SECONDS, self._worked / SHARE)
