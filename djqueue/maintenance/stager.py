"""Make scheduled and retryable jobs available when they are due."""

from __future__ import annotations

from collections.abc import Callable

from djqueue.engines.protocol import WorkerEngine
from djqueue.service import Service

LOOK_SECONDS = 1.0
BATCH_LIMIT = 5000


class Stager(Service):
    name = "stager"

    def __init__(self, engine: WorkerEngine, *, is_leader: Callable[[], bool]) -> None:
        super().__init__()
        self._engine = engine
        self._is_leader = is_leader

    def run_once(self) -> float:
        """Stage one batch and return the seconds until the next job is due, one second at most."""
        if not self._is_leader():
            return LOOK_SECONDS
        staged = self._engine.stage(BATCH_LIMIT)
        if staged.next_in is None:
            return LOOK_SECONDS
        return min(LOOK_SECONDS, max(0.0, staged.next_in))

    def on_stop(self) -> None:
        self._engine.close()
